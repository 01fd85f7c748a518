#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/forwarding_communicator.h"
#include "tests/support/unowned.h"

namespace slackline::testing {

// A world that leaves out one sum: sum `skipped` (from 0) of every communicator of one axis, on all
// of its ranks alike. Everything else is another communicator's, which must outlive this one.
class SkippingCommunicator final : public ForwardingCommunicator {
 public:
  struct Skip {
    std::string axis;
    int skipped = 0;
  };

  SkippingCommunicator(Communicator& real, Skip skip)
      : ForwardingCommunicator(unowned(real)), skip_(std::move(skip)) {}

  SkippingCommunicator(std::unique_ptr<Communicator> real, Skip skip)
      : ForwardingCommunicator(std::move(real)), skip_(std::move(skip)) {}

  [[nodiscard]] Transfer submit(Operation operation) override {
    const bool sums = operation.kind == Kind::all_reduce || operation.kind == Kind::reduce_scatter;
    return sums && skips_this() ? Transfer() : real().submit(std::move(operation));
  }

  [[nodiscard]] std::unique_ptr<Communicator> group(const std::string& axis,
                                                    const std::vector<int>& members,
                                                    Urgency urgency) override {
    return std::make_unique<SkippingCommunicator>(real().group(axis, members, urgency), skip_);
  }

 private:
  [[nodiscard]] bool skips_this() { return axis() == skip_.axis && sums_++ == skip_.skipped; }

  Skip skip_;
  int sums_ = 0;
};

}  // namespace slackline::testing
