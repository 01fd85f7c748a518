#pragma once

#include <algorithm>
#include <cstddef>

#include "core/kernels/matmul/gemm_pack.h"

// Packing the panels that are needed next while others are multiplied, so that neither the latency
// of memory nor the copying shows. Both kinds give one panel after the other, whole panels only:
//   before_tile(); multiply_tile(tile, *this), which calls step(); after_tile(); ... finish()
namespace slackline::gemm {

// What to pack: `panels` panels of K x kColumns each, one behind the other at `to`.
template <typename T>
struct PanelsToPack {
  Source<T> source{};
  std::size_t K = 0;
  std::size_t panels = 0;
  float* to = nullptr;
};

// From k_rows: a step copies one vector and fetches the one kAhead rows further down.
template <typename T>
class PanelCopy {
 public:
  // `tiles`: number of tiles that will be multiplied meanwhile.
  PanelCopy(const PanelsToPack<T>& work, std::size_t /*tiles*/) : work_(work) { open_panel(); }

  void before_tile() {}

  void after_tile() {}

  void step() {
    if (panel_ == work_.panels) {
      return;
    }
    hwy::Prefetch(from_ + kAhead * work_.source.stride);
    hn::Store(load_floats(kFloats, from_), kFloats, work_.to);
    work_.to += kLanes;
    from_ += kLanes;
    if (++vector_ == kVectors) {
      next_row();
    }
  }

  void finish() {
    while (panel_ < work_.panels) {
      step();
    }
  }

 private:
  static constexpr std::size_t kAhead = 16;  // rows; a row's steps last some 150 cycles

  void next_row() {
    vector_ = 0;
    from_ += work_.source.stride - kColumns;
    if (++k_ == work_.K) {
      ++panel_;
      open_panel();
    }
  }

  void open_panel() {
    k_ = 0;
    from_ = work_.source.at(0, panel_ * kColumns);
    if (panel_ < work_.panels) {
      LineWalk first = work_.source.from_element(0, panel_ * kColumns)
                           .lines(std::min(kAhead, work_.K), kColumns);
      while (!first.is_done()) {
        first.step();
      }
    }
  }

  PanelsToPack<T> work_;
  const T* from_ = nullptr;
  std::size_t panel_ = 0;
  std::size_t k_ = 0;
  std::size_t vector_ = 0;
};

// From j_rows: a tile's steps fetch the lines of a slice of k, which is transposed after the tile.
template <typename T>
class PanelTransposition {
 public:
  PanelTransposition(const PanelsToPack<T>& work, std::size_t tiles)
      : work_(work), slice_(slice_for(work.K * work.panels, tiles)) {}

  void before_tile() {
    if (panel_ < work_.panels) {
      lines_ = slice_source().lines(slice_end() - k_, kColumns);
    }
  }

  void step() { lines_.step(); }

  void after_tile() {
    if (panel_ == work_.panels) {
      return;
    }
    float* to = work_.to + (panel_ * work_.K + k_) * kColumns;
    pack<kColumns>(slice_source(), slice_end() - k_, kColumns, to);
    k_ = slice_end();
    if (k_ == work_.K) {
      k_ = 0;
      ++panel_;
    }
  }

  void finish() {
    while (panel_ < work_.panels) {
      before_tile();
      while (!lines_.is_done()) {
        lines_.step();
      }
      after_tile();
    }
  }

 private:
  static std::size_t slice_for(std::size_t sums, std::size_t tiles) {
    constexpr std::size_t kLine = 64 / sizeof(T);
    const std::size_t slice = (sums + tiles - 1) / tiles;
    return (slice + kLine - 1) / kLine * kLine;
  }

  [[nodiscard]] std::size_t slice_end() const { return std::min(work_.K, k_ + slice_); }

  [[nodiscard]] Source<T> slice_source() const {
    return work_.source.from_element(k_, panel_ * kColumns);
  }

  PanelsToPack<T> work_;
  std::size_t slice_;
  LineWalk lines_;
  std::size_t panel_ = 0;
  std::size_t k_ = 0;
};

}  // namespace slackline::gemm
