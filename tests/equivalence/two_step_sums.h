#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/forwarding_communicator.h"
#include "tests/support/unowned.h"

namespace slackline::testing {

// A world in which data ranks add up as the groups of docs/numerics.md do, in two sums in rank
// order: one over each run of `data_ranks` ranks, one over those at the same place in every run.
// Everything else is another communicator's, which must outlive this one.
class TwoStepSums final : public ForwardingCommunicator {
 public:
  TwoStepSums(Communicator& world, int data_ranks)
      : ForwardingCommunicator(unowned(world)), data_ranks_(data_ranks) {}

  TwoStepSums(std::unique_ptr<Communicator> made, int data_ranks)
      : ForwardingCommunicator(std::move(made)), data_ranks_(data_ranks) {
    if (axis() != "data") {
      return;
    }
    std::vector<int> run;
    std::vector<int> same_place;
    for (int other = 0; other < size(); ++other) {
      if (other / data_ranks == rank() / data_ranks) {
        run.push_back(other);
      }
      if (other % data_ranks == rank() % data_ranks) {
        same_place.push_back(other);
      }
    }
    run_ = real().group("data", run, Urgency::now);
    across_ = real().group("data", same_place, Urgency::now);
  }

  [[nodiscard]] Transfer submit(Operation operation) override {
    if (operation.kind != Kind::all_reduce || run_ == nullptr) {
      return real().submit(std::move(operation));
    }
    run_->all_reduce(operation.data, operation.note).wait();
    return across_->all_reduce(operation.data, operation.note);
  }

  [[nodiscard]] std::unique_ptr<Communicator> group(const std::string& axis,
                                                    const std::vector<int>& members,
                                                    Urgency urgency) override {
    return std::make_unique<TwoStepSums>(real().group(axis, members, urgency), data_ranks_);
  }

 private:
  int data_ranks_;
  std::unique_ptr<Communicator> run_;  // null where sums are the other communicator's
  std::unique_ptr<Communicator> across_;
};

}  // namespace slackline::testing
