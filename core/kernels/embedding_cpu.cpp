#include "core/kernels/embedding.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"

// Backward: tasks own columns of the tables, not rows, so that a token that occurs often is summed
// in order without locks or scratch memory. A task touches 256 bytes of each row: whole cache
// lines, as tables are aligned to them.
namespace slackline::cpu {

namespace {

constexpr std::size_t kRowsPerTask = 16;
constexpr std::size_t kColumnsPerTask = 64;

// to[i] += from[i]
template <typename T>
void add_row(const T* from, std::span<float> to) {
  simd::for_each_vector(to.size(), [=](std::size_t i, auto part) {
    float* sum = to.data() + i;
    simd::store(simd::hn::Add(simd::load(sum, part), simd::load(from + i, part)), sum, part);
  });
}

}  // namespace

template <typename T>
void embedding_forward(StreamView stream, const EmbeddingForward& args) {
  const auto num_positions = static_cast<std::size_t>(args.tokens.dim(1));
  const auto C = static_cast<std::size_t>(args.y.dim(2));
  const std::span<const std::int32_t> tokens = args.tokens.span<std::int32_t>();
  const T* token_table = args.token_table.data<T>();
  const T* positions =
      args.position_table.data<T>() + static_cast<std::size_t>(args.first_position) * C;
  T* y = args.y.data<T>();
  parallel_ranges(stream, tokens.size(), kRowsPerTask, [=](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      const T* token = token_table + static_cast<std::size_t>(tokens[row]) * C;
      const T* position = positions + row % num_positions * C;
      T* out = y + row * C;
      simd::for_each_vector(C, [=](std::size_t i, auto part) {
        const simd::Floats sum =
            simd::hn::Add(simd::load(token + i, part), simd::load(position + i, part));
        simd::store(sum, out + i, part);
      });
    }
  });
}

template <typename T>
void embedding_backward(StreamView stream, const EmbeddingBackward& args) {
  const auto num_positions = static_cast<std::size_t>(args.tokens.dim(1));
  const auto C = static_cast<std::size_t>(args.dy.dim(2));
  const std::span<const std::int32_t> tokens = args.tokens.span<std::int32_t>();
  const T* dy = args.dy.data<T>();
  float* d_tokens = args.d_token_table.data<float>();
  float* d_positions = args.d_position_table.data<float>();
  parallel_ranges(stream, C, kColumnsPerTask, [=](std::size_t begin, std::size_t end) {
    const std::size_t width = end - begin;
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const T* from = dy + row * C + begin;
      const auto token = static_cast<std::size_t>(tokens[row]);
      add_row(from, std::span<float>(d_tokens + token * C + begin, width));
      add_row(from, std::span<float>(d_positions + row % num_positions * C + begin, width));
    }
  });
}

template void embedding_forward<float>(StreamView, const EmbeddingForward&);
template void embedding_forward<BFloat16>(StreamView, const EmbeddingForward&);
template void embedding_backward<float>(StreamView, const EmbeddingBackward&);
template void embedding_backward<BFloat16>(StreamView, const EmbeddingBackward&);

}  // namespace slackline::cpu
