#pragma once

#include <cstdint>

#include "core/arena.h"
#include "core/comm/transfer.h"
#include "core/tensor.h"

namespace slackline {

// The tensor axis as layers see it: sums of partial products over the ranks that share a layer.
// Declared here and implemented in parallel, so that layers know nothing of communicators, and so
// that a sum may later be compressed.
//
// A layer's input and output are the "rows" this rank owns of the residual stream: all N of them,
// or, with sequence parallelism, slice rank() of size() equal slices. Inside a layer every rank has
// all N rows and a part of the columns.
class TensorSum {
 public:
  TensorSum(int rank, int size, bool sequence_parallel)
      : rank_(rank), size_(size), sequence_parallel_(sequence_parallel && size > 1) {}

  virtual ~TensorSum() = default;
  TensorSum(const TensorSum&) = delete;
  TensorSum& operator=(const TensorSum&) = delete;

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int size() const { return size_; }

  [[nodiscard]] bool sequence_parallel() const { return sequence_parallel_; }

  // How many of N rows this rank owns, and the first. REQUIRES: N divides by size() where they are
  // cut.
  [[nodiscard]] std::int64_t num_rows(std::int64_t N) const {
    return sequence_parallel_ ? N / size_ : N;
  }

  [[nodiscard]] std::int64_t first_row(std::int64_t N) const {
    return sequence_parallel_ ? rank_ * num_rows(N) : 0;
  }

  // The rows of `whole` (N, C) that this rank owns.
  [[nodiscard]] Tensor own_rows(const Tensor& whole) const {
    const std::int64_t first = first_row(whole.dim(0));
    return whole.rows(first, first + num_rows(whole.dim(0)));
  }

  // Room for all rows: `rows` themselves when they are not cut.
  [[nodiscard]] Tensor allocate_whole(ArenaScope& scratch, const Tensor& rows) const {
    return sequence_parallel_ ? scratch.allocate(rows.dtype(), {rows.dim(0) * size_, rows.dim(1)})
                              : rows;
  }

  // Sums `partial` (N, C) over the ranks, in place: afterwards own_rows(partial) hold the sum.
  [[nodiscard]] virtual Transfer sum(const Tensor& partial) = 0;

  // Puts every rank's rows together; `whole` is what allocate_whole gave.
  [[nodiscard]] virtual Transfer gather(const Tensor& rows, const Tensor& whole) = 0;

  // Rank r's `own` (N, K) f32, as it is, into all[r]; `all` is (size(), N, K). For statistics of a
  // softmax whose columns are spread over the ranks.
  [[nodiscard]] virtual Transfer collect(const Tensor& own, const Tensor& all) = 0;

 private:
  int rank_;
  int size_;
  bool sequence_parallel_;
};

// One rank: nothing travels.
class NoTensorSum final : public TensorSum {
 public:
  NoTensorSum() : TensorSum(0, 1, false) {}

  Transfer sum(const Tensor& /*partial*/) override { return {}; }

  Transfer gather(const Tensor& /*rows*/, const Tensor& /*whole*/) override { return {}; }

  Transfer collect(const Tensor& own, const Tensor& all) override;
};

}  // namespace slackline
