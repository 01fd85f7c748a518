#pragma once

#include <cstdint>

#include "core/check.h"
#include "core/comm/transfer.h"
#include "core/tensor/arena.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Where a rank stands on the tensor axis, and so which part of a tensor is its own. A value: memory
// plans and tests need no ranks.
struct TensorShare {
  int rank = 0;
  int size = 1;
  bool sequence_parallel = false;  // REQUIRES: false for one rank

  // The first of `count` heads, columns or rows of the vocabulary that this rank has, and how many
  // it has. That number differs by one at most from rank to rank.
  [[nodiscard]] std::int64_t first_of(std::int64_t count) const { return count * rank / size; }

  [[nodiscard]] std::int64_t num_of(std::int64_t count) const {
    return count * (rank + 1) / size - first_of(count);
  }

  // The type of partial products that the ranks add up: f32, so that a sum rounds once, as one
  // rank's does.
  [[nodiscard]] DType partial(DType dtype) const { return size > 1 ? DType::f32 : dtype; }

  // How many of N rows of the residual stream this rank owns, and the first. REQUIRES: N divides
  // by size where they are cut.
  [[nodiscard]] std::int64_t num_rows(std::int64_t N) const {
    return sequence_parallel ? N / size : N;
  }

  [[nodiscard]] std::int64_t first_row(std::int64_t N) const {
    return sequence_parallel ? rank * num_rows(N) : 0;
  }

  // Room for all rows: `rows` themselves when they are not cut.
  [[nodiscard]] Tensor allocate_whole(ArenaScope& scratch, const Tensor& rows) const {
    return sequence_parallel ? scratch.allocate(rows.dtype(), {rows.dim(0) * size, rows.dim(1)})
                             : rows;
  }
};

// The tensor axis as layers see it: sums of partial products over the ranks that share a layer.
// Declared here and implemented in parallel, so that layers know nothing of communicators, and so
// that a sum may later be compressed.
//
// A layer's input and output are the "rows" this rank owns of the residual stream: all N of them,
// or, with sequence parallelism, slice `rank` of `size` equal slices. Inside a layer every rank has
// all N rows and a part of the columns.
class TensorSum {
 public:
  TensorSum(int rank, int size, bool sequence_parallel)
      : share_{.rank = rank, .size = size, .sequence_parallel = sequence_parallel && size > 1} {}

  virtual ~TensorSum() = default;
  TensorSum(const TensorSum&) = delete;
  TensorSum& operator=(const TensorSum&) = delete;

  [[nodiscard]] const TensorShare& share() const { return share_; }

  // The rows of `whole` (N, C) that this rank owns.
  [[nodiscard]] Tensor own_rows(const Tensor& whole) const {
    const std::int64_t first = share_.first_row(whole.dim(0));
    return whole.rows(first, first + share_.num_rows(whole.dim(0)));
  }

  // Sums `partial` (N, C), of type share().partial(), over the ranks, in place: afterwards
  // own_rows(partial) hold the sum.
  [[nodiscard]] virtual Transfer sum(const Tensor& partial) = 0;

  // Puts every rank's rows together; `whole` is what share().allocate_whole gave. Nothing is to be
  // done when rows are not cut.
  [[nodiscard]] virtual Transfer gather(const Tensor& rows, const Tensor& whole) = 0;

  // Rank r's `own` (N, K) f32, as it is, into all[r]; `all` is (size, N, K). For statistics of a
  // softmax whose columns are spread over the ranks.
  [[nodiscard]] virtual Transfer collect(const Tensor& own, const Tensor& all) = 0;

 private:
  TensorShare share_;
};

// One rank: nothing travels.
class NoTensorSum final : public TensorSum {
 public:
  NoTensorSum() : TensorSum(0, 1, false) {}

  Transfer sum(const Tensor& /*partial*/) override { return {}; }

  Transfer gather(const Tensor& /*rows*/, const Tensor& /*whole*/) override { return {}; }

  Transfer collect(const Tensor& /*own*/, const Tensor& /*all*/) override {
    SL_CHECK(false, "one rank has all columns of its softmax");
  }
};

}  // namespace slackline
