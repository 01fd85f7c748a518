#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tests/reference/low_rank_oracle.h"

namespace slackline::reference {

// The sender of a row of low-rank messages: what one message leaves behind is added to the next one
// that is sent, however far apart they are (lazy error propagation).
class LazySender {
 public:
  explicit LazySender(Matrix first_right) : right_(std::move(first_right)), owed_(0, 0) {}

  // What the receiver makes of the message.
  [[nodiscard]] Matrix send(const Matrix& message) {
    const Matrix compressed = owed_.rows == 0 ? message : combined(message, 1.0, owed_);
    const LowRankStep step(compressed, right_);
    right_ = step.right;
    owed_ = combined(compressed, -1.0, step.decoded);
    return step.decoded;
  }

  void forget_what_is_owed() { owed_ = Matrix(0, 0); }

 private:
  Matrix right_;
  Matrix owed_;  // (0, 0): nothing
};

// A low-rank sum over ranks, once a step: each rank adds what its own part was owed, and keeps its
// part less an equal share of what all receive.
class FeedbackSum {
 public:
  FeedbackSum(Matrix first_right, std::vector<Matrix> owed)
      : right_(std::move(first_right)), owed_(std::move(owed)) {}

  [[nodiscard]] Matrix sum(const std::vector<Matrix>& parts) {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      owed_[rank] = combined(owed_[rank], 1.0, parts[rank]);
    }
    Matrix all = owed_.front();
    for (std::size_t rank = 1; rank < owed_.size(); ++rank) {
      all = combined(all, 1.0, owed_[rank]);
    }
    const LowRankStep step(all, right_);
    right_ = step.right;
    for (Matrix& owed : owed_) {
      owed = combined(owed, -1.0 / static_cast<double>(owed_.size()), step.decoded);
    }
    return step.decoded;
  }

 private:
  Matrix right_;
  std::vector<Matrix> owed_;  // of each rank
};

}  // namespace slackline::reference
