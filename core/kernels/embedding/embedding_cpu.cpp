#include <algorithm>
#include <cstdint>
#include <span>

#include "core/kernels/embedding/embedding.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"

// Backward: tasks own columns of the tables, not rows, so that a token that occurs often is summed
// in order without locks or scratch memory. A task touches 256 bytes of each row: whole cache
// lines, as tables are aligned to them.
namespace slackline::cpu {

namespace {

constexpr std::size_t kRowsPerTask = 16;
constexpr std::size_t kColumnsPerTask = 64;

// The rows that a table has of a vocabulary.
template <typename T>
struct TableRows {
  T* values;
  std::int64_t first_token;
  std::int64_t num_rows;

  // Null where the token has none.
  [[nodiscard]] T* row_of(std::int32_t token, std::size_t C) const {
    const std::int64_t row = token - first_token;
    return row < 0 || row >= num_rows ? nullptr : values + static_cast<std::size_t>(row) * C;
  }
};

// to = token + position, either of which may be null: zeros. token may be `to`.
template <typename T>
void write_sum(const T* token, const T* position, std::span<T> to) {
  if (token != nullptr && position != nullptr) {
    simd::for_each_vector(to.size(), [=](std::size_t i, auto part) {
      const simd::Floats sum =
          simd::hn::Add(simd::load(token + i, part), simd::load(position + i, part));
      simd::store(sum, to.data() + i, part);
    });
  } else if (const T* from = token != nullptr ? token : position; from != nullptr) {
    std::copy_n(from, to.size(), to.data());
  } else {
    std::fill(to.begin(), to.end(), T{});
  }
}

}  // namespace

template <typename T>
void embedding_forward(StreamView stream, const EmbeddingForward& args) {
  const auto num_positions = static_cast<std::size_t>(args.tokens.dim(1));
  const auto C = static_cast<std::size_t>(args.y.dim(2));
  const std::span<const std::int32_t> tokens = args.tokens.span<std::int32_t>();
  const TableRows<const T> table{
      args.token_table.data<T>(), args.first_token, args.token_table.dim(0)};
  const T* positions =
      args.position_table.empty()
          ? nullptr
          : args.position_table.data<T>() + static_cast<std::size_t>(args.first_position) * C;
  T* y = args.y.data<T>();
  parallel_ranges(stream, tokens.size(), kRowsPerTask, [=](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      const T* token = table.row_of(tokens[row], C);
      const T* position = positions == nullptr ? nullptr : positions + row % num_positions * C;
      write_sum(token, position, std::span<T>(y + row * C, C));
    }
  });
}

template <typename T>
void add_positions(StreamView stream, const PositionAdd& args) {
  const auto num_positions = static_cast<std::size_t>(args.T);
  const auto first_row = static_cast<std::size_t>(args.first_row);
  const auto C = static_cast<std::size_t>(args.y.dim(1));
  const T* positions = args.position_table.data<T>();
  const T* x = args.x.data<T>();
  T* y = args.y.data<T>();
  const auto num_rows = static_cast<std::size_t>(args.y.dim(0));
  parallel_ranges(stream, num_rows, kRowsPerTask, [=](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      const T* position = positions + (first_row + row) % num_positions * C;
      write_sum(x + row * C, position, std::span<T>(y + row * C, C));
    }
  });
}

template <typename T>
void embedding_backward(StreamView stream, const EmbeddingBackward& args) {
  const auto num_positions = static_cast<std::size_t>(args.tokens.dim(1));
  const auto C = static_cast<std::size_t>(args.dy.dim(2));
  const std::span<const std::int32_t> tokens = args.tokens.span<std::int32_t>();
  const T* dy = args.dy.data<T>();
  const bool has_tokens = !args.d_token_table.empty();
  const TableRows<float> d_tokens{has_tokens ? args.d_token_table.data<float>() : nullptr,
                                  args.first_token,
                                  has_tokens ? args.d_token_table.dim(0) : 0};
  float* d_positions =
      args.d_position_table.empty() ? nullptr : args.d_position_table.data<float>();
  parallel_ranges(stream, C, kColumnsPerTask, [=](std::size_t begin, std::size_t end) {
    const std::size_t width = end - begin;
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const T* from = dy + row * C + begin;
      if (float* d_token = d_tokens.row_of(tokens[row], C); d_token != nullptr) {
        simd::add_elements(from, d_token + begin, width);
      }
      if (d_positions != nullptr) {
        simd::add_elements(from, d_positions + row % num_positions * C + begin, width);
      }
    }
  });
}

template void embedding_forward<float>(StreamView, const EmbeddingForward&);
template void embedding_forward<BFloat16>(StreamView, const EmbeddingForward&);
template void add_positions<float>(StreamView, const PositionAdd&);
template void add_positions<BFloat16>(StreamView, const PositionAdd&);
template void embedding_backward<float>(StreamView, const EmbeddingBackward&);
template void embedding_backward<BFloat16>(StreamView, const EmbeddingBackward&);

}  // namespace slackline::cpu
