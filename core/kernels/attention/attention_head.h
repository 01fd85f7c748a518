#pragma once

#include <cmath>
#include <cstddef>

#include "core/kernels/attention/attention.h"
#include "core/kernels/matmul/gemm_pack.h"

// What the forward and backward passes of attention share: one head of one sequence, and how its
// rows are packed for gemm_tile.h.
namespace slackline::attention {

using gemm::kColumns;
using gemm::kRows;

[[nodiscard]] constexpr std::size_t rounded_up(std::size_t count, std::size_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Sizes of one head, padded to what is multiplied at once.
struct HeadSize {
  HeadSize(std::size_t T_, std::size_t D_)
      : T(T_),
        D(D_),
        T_strips(rounded_up(T, kRows)),
        T_panels(rounded_up(T, kColumns)),
        D_strips(rounded_up(D, kRows)),
        D_lanes(rounded_up(D, gemm::kLanes)) {}

  std::size_t T, D;
  std::size_t T_strips, T_panels;
  std::size_t D_strips, D_lanes;
};

// Hands out pieces of a thread's scratch, aligned to cache lines; with a null base it only counts.
class Pieces {
 public:
  explicit Pieces(float* base) : base_(base) {}

  float* take(std::size_t elements) {
    float* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += rounded_up(elements, Arena::kAlignment / sizeof(float));
    return piece;
  }

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  float* base_;
  std::size_t used_ = 0;
};

// Where one head's rows stand: row t at from + t * stride.
template <typename T>
struct Rows {
  T* from = nullptr;
  std::size_t stride = 0;

  [[nodiscard]] T* row(std::size_t t) const { return from + t * stride; }

  // As an operand whose strips or panels run over t, the sums over d.
  [[nodiscard]] gemm::Source<T> across_time(std::size_t t) const {
    return {row(t), stride, gemm::Order::j_rows};
  }

  // As an operand whose strips run over d, the sums over t.
  [[nodiscard]] gemm::Source<T> across_channels(std::size_t d) const {
    return {from + d, stride, gemm::Order::k_rows};
  }
};

// Packs rows [0, count) into strips over t: strip t / kRows at to + t * D.
template <typename T>
void pack_time_strips(const Rows<T>& rows, std::size_t count, std::size_t D, float* to) {
  for (std::size_t t = 0; t < count; t += kRows) {
    gemm::pack<kRows>(rows.across_time(t), D, std::min(kRows, count - t), to + t * D);
  }
}

// Packs rows [0, count) into panels over t: panel t / kColumns at to + t * D.
template <typename T>
void pack_time_panels(const Rows<T>& rows, std::size_t count, std::size_t D, float* to) {
  for (std::size_t t = 0; t < count; t += kColumns) {
    gemm::pack<kColumns>(rows.across_time(t), D, std::min(kColumns, count - t), to + t * D);
  }
}

// Packs rows [0, count) into strips over d, each padded with zeros to a whole strip of t:
// strip d / kRows at to + d * rounded_up(count, kRows), element (t, i) at [t * kRows + i].
template <typename T>
void pack_channel_strips(const Rows<T>& rows, std::size_t count, std::size_t D, float* to) {
  const std::size_t padded = rounded_up(count, kRows);
  for (std::size_t d = 0; d < D; d += kRows) {
    float* strip = to + d * padded;
    gemm::pack<kRows>(rows.across_channels(d), count, std::min(kRows, D - d), strip);
    std::fill(strip + count * kRows, strip + padded * kRows, 0.0F);
  }
}

// Writes columns of a (D_lanes x columns) block, channels first, as rows of the head.
struct ChannelsFirst {
  const float* from = nullptr;  // channel d of column q at from[d * stride + q]
  std::size_t stride = 0;
  float* scratch = nullptr;  // kColumns * D_lanes elements
};

template <typename T>
void write_rows(const ChannelsFirst& block,
                const HeadSize& size,
                std::size_t count,
                const Rows<T>& to) {
  gemm::transpose(
      {block.from, block.stride, block.scratch, size.D_lanes}, rounded_up(count, 4), size.D_lanes);
  for (std::size_t q = 0; q < count; ++q) {
    const float* row = block.scratch + q * size.D_lanes;
    simd::for_each_vector(size.D, [&](std::size_t d, auto part) {
      simd::store(simd::load(row + d, part), to.row(q) + d, part);
    });
  }
}

// The three parts of a head in (B, T, 3 * H * D), and a head in (B, T, H * D).
enum class Part : std::size_t { query = 0, key = 1, value = 2 };

struct HeadIndex {
  std::size_t b = 0, h = 0;
};

template <typename T>
Rows<T> part_of(const Tensor& qkv, std::size_t D, Part part, HeadIndex head) {
  const auto time = static_cast<std::size_t>(qkv.dim(1));
  const auto stride = static_cast<std::size_t>(qkv.dim(2));
  const std::size_t column = static_cast<std::size_t>(part) * (stride / 3) + head.h * D;
  return {qkv.data<T>() + head.b * time * stride + column, stride};
}

template <typename T>
Rows<T> head_of(const Tensor& output, std::size_t D, HeadIndex head) {
  const auto time = static_cast<std::size_t>(output.dim(1));
  const auto stride = static_cast<std::size_t>(output.dim(2));
  return {output.data<T>() + head.b * time * stride + head.h * D, stride};
}

[[nodiscard]] inline float score_scale(std::size_t D) {
  return 1.0F / std::sqrt(static_cast<float>(D));
}

// Floats of scratch that one thread needs.
[[nodiscard]] std::size_t forward_scratch_elements(const HeadSize& size);
[[nodiscard]] std::size_t backward_scratch_elements(const HeadSize& size);

}  // namespace slackline::attention
