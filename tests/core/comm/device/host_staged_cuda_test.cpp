#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "core/comm/device/host_staged.h"
#include "core/comm/forwarding_communicator.h"
#include "core/comm/world.h"
#include "core/kernels/elementwise/elementwise.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/core/comm/hierarchy_checks.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

// Waits as the host's communicators do, until the data is there: what the checks expect.
class WaitingCommunicator final : public ForwardingCommunicator {
 public:
  WaitingCommunicator(std::unique_ptr<Communicator> real, Stream& stream)
      : ForwardingCommunicator(std::move(real)), stream_(&stream) {}

  Transfer submit(Operation operation) override {
    const bool waits = operation.kind != Kind::barrier;
    Transfer transfer = real().submit(std::move(operation));
    return waits && !transfer.is_empty()
               ? Transfer(std::make_unique<State>(std::move(transfer), *stream_))
               : std::move(transfer);
  }

  std::unique_ptr<Communicator> group(const std::string& axis,
                                      const std::vector<int>& members,
                                      Urgency urgency) override {
    return std::make_unique<WaitingCommunicator>(real().group(axis, members, urgency), *stream_);
  }

 private:
  class State final : public Transfer::State {
   public:
    State(Transfer transfer, Stream& stream) : transfer_(std::move(transfer)), stream_(&stream) {}

    void wait() override {
      transfer_.wait();
      stream_->synchronize();
    }

    [[nodiscard]] bool done() const override { return transfer_.done(); }

   private:
    Transfer transfer_;
    Stream* stream_;
  };

  Stream* stream_;
};

// Ranks are threads here, so no memory of the device may go while another's stream waits: tests
// that have streams wait keep their tensors to the end.
//
// A rank's communicator for tensors of the device, and the stream that it follows.
struct StagedRank {
  StagedRank(Communicator& world, const std::vector<int>& members, HostStaging::Waits waits) {
    staging->follow(stream);
    staging->set_waits(waits);
    group = host_staged(world.group("staged", members), staging);
  }

  Stream stream{test_stream(1)};
  std::shared_ptr<HostStaging> staging = std::make_shared<HostStaging>();
  std::unique_ptr<Communicator> group{};
};

std::vector<int> all_of(const Communicator& world) {
  std::vector<int> members(static_cast<std::size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

constexpr std::int64_t kElements = 1000;

GuardedTensor filled(double value) {
  GuardedTensor tensor(DType::f32, {kElements});
  tensor.fill(value);
  return tensor;
}

}  // namespace

TEST_CASE("transfers of the device's tensors through the host do what those of the host's do") {
  for (const CommCheck& check : comm_checks()) {
    if (check.claim == "a transfer may follow one that has ended") {
      continue;  // State hides the one it follows
    }
    // What work makes and takes is on the device when its transfer has ended.
    const bool all_by_work = check.claim == "a sum may be made of the sum before it" ||
                             check.claim == "a gather may be made of the slices of a sum";
    INFO(check.claim);
    for (const int size : {2, 3, 4}) {
      REQUIRE_NOTHROW(run_local_ranks(size, {.longest_background = 4096}, [&](Communicator& world) {
        StagedRank rank(world, all_of(world), HostStaging::Waits::thread);
        if (all_by_work) {
          check.run(*rank.group);
        } else {
          WaitingCommunicator waiting(std::move(rank.group), rank.stream);
          check.run(waiting);
        }
      }));
    }
  }
}

TEST_CASE("tensors of the device go through groups as those of the host do") {
  for (const CommCheck& check : hierarchy_checks()) {
    if (check.claim.starts_with("sums through groups keep apart") ||
        check.claim.starts_with("two communicators, one after the other")) {
      continue;  // they follow transfers, which State hides
    }
    INFO(check.claim);
    REQUIRE_NOTHROW(run_local_ranks(4, {}, [&](Communicator& world) {
      StagedRank rank(world, all_of(world), HostStaging::Waits::thread);
      WaitingCommunicator waiting(std::move(rank.group), rank.stream);
      check.run(waiting);
    }));
  }
}

TEST_CASE("the stream waits for a transfer and the rank's thread does not") {
  run_local_ranks(2, {}, [](Communicator& world) {
    StagedRank rank(world, {0, 1}, HostStaging::Waits::stream);
    GuardedTensor data = filled(1.0 + world.rank());
    GuardedTensor out = filled(0.0);
    GuardedTensor later = filled(7.0);
    world.barrier({}).wait();
    if (world.rank() == 0) {
      rank.group->receive(data, 1, {}).wait();
      cast(rank.stream, data, out);
      // The other rank sends when it has heard that this one has come here.
      double word = 1.0;
      world.send(Tensor(std::span(&word, 1)), 1, {}).wait();
    } else {
      double word = 0.0;
      world.receive(Tensor(std::span(&word, 1)), 0, {}).wait();
      rank.group->send(data, 0, {}).wait();
      cast(rank.stream, later, data);  // after it has been read
    }
    rank.stream.synchronize();
    world.barrier({}).wait();
    if (world.rank() == 0) {
      expect(out.values() == std::vector<double>(kElements, 2.0), world, "what was sent");
    }
  });
}

TEST_CASE("a long message between two ranks goes in parts, and is one transfer") {
  constexpr std::int64_t kLong = 3 * (std::int64_t{1} << 20) + 5;  // floats: 12 MiB and a little
  for (const HostStaging::Waits waits : {HostStaging::Waits::thread, HostStaging::Waits::stream}) {
    run_local_ranks(2, {}, [&](Communicator& world) {
      StagedRank rank(world, {0, 1}, waits);
      const int peer = 1 - world.rank();
      GuardedTensor sent = random_tensor(
          DType::f32, {kLong}, {.seed = static_cast<std::uint64_t>(world.rank()) + 1});
      const GuardedTensor expected =
          random_tensor(DType::f32, {kLong}, {.seed = static_cast<std::uint64_t>(peer) + 1});
      GuardedTensor received(DType::f32, {kLong});
      GuardedTensor out(DType::f32, {kLong});
      world.barrier({}).wait();
      rank.group->record_transfers(true);
      Transfer sending = rank.group->send(sent, peer, {});
      rank.group->receive(received, peer, {}).wait();
      cast(rank.stream, received, out);
      sending.wait();
      rank.stream.synchronize();
      const std::vector<TransferRecord> records = rank.group->take_records();
      world.barrier({}).wait();
      expect(out.bytes() == expected.bytes(), world, "what was sent");
      expect(out.sentinels_intact() && received.sentinels_intact(), world, "no more was written");
      expect(records.size() == 2, world, "two transfers");
      expect(rank.group->bytes_sent() == kLong * sizeof(float), world, "bytes sent once");
    });
  }
}

TEST_CASE("a rank that runs ahead of its device waits for it now and then") {
  constexpr int kTransfers = 100;  // more than are kept
  run_local_ranks(2, {}, [](Communicator& world) {
    StagedRank rank(world, {0, 1}, HostStaging::Waits::stream);
    GuardedTensor sum = filled(1.0);
    std::vector<GuardedTensor> sent;
    sent.reserve(kTransfers);
    for (int i = 0; i < kTransfers; ++i) {
      sent.push_back(filled(i + 1000.0 * world.rank()));
    }
    world.barrier({}).wait();
    for (int i = 0; i < kTransfers; ++i) {
      if (i < 10) {
        rank.group->all_reduce(sum, {}).wait();
      }
      rank.group->broadcast(sent[static_cast<std::size_t>(i)], i % 2, {}).wait();
    }
    rank.stream.synchronize();
    world.barrier({}).wait();
    expect(sum.values() == std::vector<double>(kElements, 1024.0), world, "ten sums of two");
    for (int i = 0; i < kTransfers; ++i) {
      const double value = i + 1000.0 * (i % 2);
      expect(sent[static_cast<std::size_t>(i)].values() == std::vector<double>(kElements, value),
             world,
             "what was sent");
    }
  });
}

TEST_CASE("a stream that waits for a rank that fails goes on, and the next call says why") {
  const auto fails = [](Communicator& world) {
    StagedRank rank(world, {0, 1}, HostStaging::Waits::stream);
    GuardedTensor data = filled(0.0);
    world.barrier({}).wait();
    if (world.rank() == 1) {
      world.fail("out of luck");
      return;
    }
    rank.group->receive(data, 1, {.what = "activations"}).wait();
    rank.stream.synchronize();
    rank.group->barrier({}).wait();
  };
  REQUIRE_THROWS_WITH(run_local_ranks(2, {}, fails),
                      Catch::Contains("activations") && Catch::Contains("out of luck"));
}

TEST_CASE("a stream that waits too long fails the job, with the transfer's name") {
  const auto waits = [](Communicator& world) {
    StagedRank rank(world, {0, 1}, HostStaging::Waits::stream);
    GuardedTensor data = filled(0.0);
    world.barrier({}).wait();
    if (world.rank() == 0) {
      rank.group->receive(data, 1, {.what = "activations"}).wait();
      rank.stream.synchronize();
    }
    while (!world.has_failed()) {
      std::this_thread::yield();
    }
    rank.group->barrier({}).wait();
  };
  REQUIRE_THROWS_WITH(run_local_ranks(2, {.timeout_seconds = 0.2}, waits),
                      Catch::Contains("of activations") && Catch::Contains("no answer within"));
}

}  // namespace slackline::testing
