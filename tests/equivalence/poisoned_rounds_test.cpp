// A message between workers belongs to its transfer until that was waited for. Here a reader finds
// NaN in it meanwhile, and whatever is written into it is lost.

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/comm/forwarding_communicator.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/outer_run.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// A message under way: its place is poisoned, a copy travels.
class Poisoned {
 public:
  explicit Poisoned(const Tensor& place) : place_(place), copy_(place_.bytes()) {}

  [[nodiscard]] Tensor travelling() { return {copy_.data(), place_.dtype(), place_.shape()}; }

  void leave() {
    const std::lock_guard lock(mutex_);
    std::memcpy(copy_.data(), place_.raw(), copy_.size());
    std::memset(place_.raw(), kPoison, copy_.size());
    is_away_ = true;
  }

  // The first call puts in place what has arrived.
  void arrive() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_away_, false)) {
      std::memcpy(place_.raw(), copy_.data(), copy_.size());
    }
  }

 private:
  static constexpr int kPoison = 0xFF;  // NaN in every float type

  Tensor place_;
  std::vector<std::byte> copy_;
  std::mutex mutex_;
  bool is_away_ = false;
};

class PoisonedTransfer final : public Transfer::State {
 public:
  PoisonedTransfer(Transfer real, std::shared_ptr<Poisoned> message)
      : real_(std::move(real)), message_(std::move(message)) {}

  void wait() override {
    real_.wait();
    message_->arrive();
  }

  [[nodiscard]] std::function<void()> wait_begins() const override {
    return real_.is_empty() ? std::function<void()>{} : real_.state()->wait_begins();
  }

  [[nodiscard]] bool done() const override { return real_.done(); }

  [[nodiscard]] const Transfer& real() const { return real_; }

  [[nodiscard]] const std::shared_ptr<Poisoned>& message() const { return message_; }

 private:
  Transfer real_;
  std::shared_ptr<Poisoned> message_;
};

// Poisons what sums and gathers of rounds have under way, and counts them.
class PoisoningCommunicator final : public ForwardingCommunicator {
 public:
  PoisoningCommunicator(std::unique_ptr<Communicator> real, std::atomic<int>& count)
      : ForwardingCommunicator(std::move(real)), count_(&count) {}

  // Work that makes a message finds in place what has arrived of the transfer before it.
  [[nodiscard]] Transfer submit(Operation operation) override {
    if (operation.kind != Kind::all_reduce && operation.kind != Kind::reduce_scatter &&
        operation.kind != Kind::all_gather) {
      return real().submit(std::move(operation));
    }
    TransferWork& work = operation.work;
    SL_CHECK(!work.beside && !work.after, "a message of rounds that work takes");
    ++*count_;
    auto message = std::make_shared<Poisoned>(operation.data);
    std::shared_ptr<Poisoned> followed;
    if (work.follows != nullptr) {
      const auto* state = dynamic_cast<const PoisonedTransfer*>(work.follows->state());
      SL_CHECK(state != nullptr, "a message follows one that is not poisoned");
      followed = state->message();
      work.follows = &state->real();
    }
    if (work.before) {
      work.before = [message, followed, make = std::move(work.before)] {
        if (followed != nullptr) {
          followed->arrive();
        }
        make();
        message->leave();
      };
    } else {
      SL_CHECK(followed == nullptr, "a message follows one that it has nothing of");
      message->leave();
    }
    operation.data = message->travelling();
    return Transfer(
        std::make_unique<PoisonedTransfer>(real().submit(std::move(operation)), message));
  }

 private:
  std::atomic<int>* count_;
};

}  // namespace

TEST_CASE("nobody reads or writes what travels between workers") {
  for (const char* outer : {R"({"method": "co2", "period": 2})",
                            R"({"method": "co2", "period": 2, "penalty": "gap"})",
                            R"({"method": "co2", "period": 2, "eager": true})",
                            R"({"method": "co2", "period": 2, "clip": 0.01, "clip_kind": "norm"})",
                            R"({"method": "slowmo", "period": 2})",
                            R"({"method": "diloco", "period": 2, "fragments": 2})"}) {
    OuterRun run = run_of(outer, 1, 2, 4, 2);
    const OuterResult expected = run_outer(run);
    std::atomic<int> count = 0;
    run.between_workers = [&](std::unique_ptr<Communicator> group) {
      return std::make_unique<PoisoningCommunicator>(std::move(group), count);
    };
    const OuterResult result = run_outer(run);
    INFO(outer);
    CHECK(count > 0);
    for (std::size_t i = 0; i < expected.anchors.size(); ++i) {
      CHECK(tensor_differences("the anchor", result.anchors[i], expected.anchors[i]) == "");
    }
    CHECK(result.rounds.back().distance == expected.rounds.back().distance);
  }
}

}  // namespace slackline::testing
