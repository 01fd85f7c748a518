#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/hierarchy.h"
#include "core/comm/world.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

using Catch::Contains;

GuardedTensor ones(std::int64_t count) {
  GuardedTensor tensor(DType::f32, Shape{count});
  tensor.fill(1.0);
  return tensor;
}

// What waiting for `transfer` throws; empty when it does not.
std::string failure_of(Transfer&& transfer) {
  try {
    transfer.wait();
  } catch (const CommError& failure) {
    REQUIRE(failure.exit_code() == ExitCode::device);
    return failure.what();
  }
  return "";
}

bool end_is_expected() {
  return true;
}

}  // namespace

TEST_CASE("a rank that throws ends the waits of all others, with its reason") {
  std::vector<std::string> texts(4);
  REQUIRE_THROWS_WITH(run_local_ranks(4,
                                      {},
                                      [&](Communicator& world) {
                                        if (world.rank() == 2) {
                                          throw std::runtime_error("out of luck");
                                        }
                                        GuardedTensor data = ones(5000);
                                        try {
                                          world.all_reduce(data, {.what = "gradients"}).wait();
                                        } catch (const CommError& failure) {
                                          texts[static_cast<std::size_t>(world.rank())] =
                                              failure.what();
                                          throw;
                                        }
                                      }),
                      "out of luck");
  for (const int rank : {0, 1, 3}) {
    REQUIRE_THAT(texts[static_cast<std::size_t>(rank)],
                 Contains("world rank " + std::to_string(rank)) &&
                     Contains("all_reduce of gradients") &&
                     Contains("world rank 2 failed: out of luck"));
  }
}

TEST_CASE("what ended a rank counts, not what it told the others") {
  const auto fail_first = [](Communicator& world) {
    GuardedTensor data = ones(5000);
    if (world.rank() == 1) {
      world.fail("told early");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      throw std::runtime_error("out of luck");
    }
    world.all_reduce(data, {}).wait();
  };
  REQUIRE_THROWS_WITH(run_local_ranks(3, {}, fail_first), "out of luck");
}

TEST_CASE("work that throws ends the waits of all ranks, with its reason") {
  const auto world = make_local_world(3);
  const auto worker = std::make_shared<Worker>();
  GuardedTensor data = ones(5);
  GuardedTensor arrived = ones(5);
  GuardedTensor never = ones(5);
  Transfer elsewhere = world[2]->receive(never, 1, {.what = "weights"});
  Transfer sent = world[0]->send(data, 1, {});
  Transfer taken =
      world[1]->receive(arrived, 0, {.what = "gradient"}, {.worker = worker, .after = [] {
                                                             throw CommError("a damaged frame");
                                                           }});
  const auto says = Contains(
      "world rank 1 (axis world, rank 1 of 3): receive from rank 0 of "
      "gradient: a damaged frame");
  REQUIRE_THAT(failure_of(std::move(taken)), says);
  REQUIRE_THAT(failure_of(std::move(elsewhere)), Contains("world rank 2") && says);
  static_cast<void>(failure_of(std::move(sent)));  // it may have ended before
}

TEST_CASE("after a failure every transfer fails, at once") {
  const auto world = make_local_world(2);
  world[1]->fail("gave up");
  GuardedTensor data = ones(3);
  REQUIRE_THAT(failure_of(world[0]->receive(data, 1, {})),
               Contains("world rank 1 failed: gave up"));
  REQUIRE_THAT(failure_of(world[0]->barrier({})), Contains("world rank 1 failed: gave up"));
  REQUIRE_THAT(failure_of(world[1]->send(data, 0, {})), Contains("world rank 1 failed: gave up"));
}

TEST_CASE("a wait without answer names rank, operation, stage, micro-batch and peer") {
  const auto world = make_local_world(3, {.timeout_seconds = 0.1});
  GuardedTensor data = ones(3);
  REQUIRE_THAT(
      failure_of(world[2]->receive(data, 1, {.what = "activations", .stage = 4, .micro_batch = 7})),
      Contains("world rank 2") && Contains("receive from rank 1") && Contains("of activations") &&
          Contains("stage 4") && Contains("micro-batch 7") &&
          Contains("waiting for world rank 1") && Contains("no answer within 0.1") &&
          Contains("network.timeout_seconds"));
}

TEST_CASE(
    "a collective that ranks come to on their own time is waited for longer, and not for ever") {
  const auto world = make_local_world(2, {.timeout_seconds = 0.1});
  GuardedTensor a = ones(3);
  GuardedTensor b = ones(3);
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(800));  // with a check of waits in it
    world[1]->all_reduce(b, {.what = "a round"}).wait();
  });
  const std::string early =
      failure_of(world[0]->all_reduce(a, {.what = "a round", .patience_seconds = 60.0}));
  late.join();
  INFO(early);
  CHECK(early.empty());
  CHECK(a.values()[0] == 2.0);
  CHECK_THAT(failure_of(world[0]->all_reduce(a, {.patience_seconds = 0.1})),
             Contains("no answer within 0.1") && Contains("of a round"));
}

TEST_CASE("a collective without answer names who is missing") {
  const auto world = make_local_world(4, {.timeout_seconds = 0.1});
  GuardedTensor a = ones(5000);
  GuardedTensor b = ones(5000);
  Transfer other = world[3]->all_reduce(a, {});
  REQUIRE_THAT(failure_of(world[0]->all_reduce(b, {})), Contains("waiting for world ranks 1, 2:"));
  const std::string text = failure_of(std::move(other));
  REQUIRE_FALSE(text.empty());
}

TEST_CASE("a sum in the background that others hold names whom the oldest of them waits for") {
  std::string text;
  const auto leave_rank_1_out = [&](Communicator& world) {
    const auto group = world.group("background", {0, 1, 2}, Urgency::background);
    constexpr int kSums = 3;
    std::vector<GuardedTensor> sums;
    std::vector<Transfer> transfers;
    sums.reserve(kSums);
    transfers.reserve(kSums);
    for (int i = 0; i < kSums; ++i) {  // each fills the window
      sums.push_back(ones(1 << 15));
    }
    if (world.rank() == 1) {
      return;
    }
    for (GuardedTensor& data : sums) {
      transfers.push_back(group->all_reduce(data, {.what = "gradients", .stage = world.rank()}));
    }
    if (world.rank() == 0) {
      text = failure_of(std::move(transfers.back()));
    }
    for (Transfer& transfer : transfers) {
      transfer.wait();
    }
  };
  REQUIRE_THROWS_AS(
      run_local_ranks(3, {.timeout_seconds = 1.0, .longest_background = 64}, leave_rank_1_out),
      CommError);
  CHECK_THAT(text,
             Contains("all_reduce of gradients") && Contains("waiting for world rank 1:") &&
                 Contains("no answer within 1.0"));
}

// Sums wait inside the group first; gathers between groups, where they overlap inside as well.
TEST_CASE("sums and gathers through groups without answer name whom a rank waits for, both ways") {
  enum class Call { sum, gather };
  const auto failure_of_rank_0 = [](const Hierarchy& hierarchy, Call call) {
    const auto world = make_local_world(4, {.timeout_seconds = 0.1});
    world[0]->set_hierarchy(hierarchy);
    GuardedTensor data = ones(5000);
    return failure_of(call == Call::sum
                          ? world[0]->all_reduce(data, {.what = "gradients"}, {.runs = {2, 1}})
                          : world[0]->all_gather(data, {.what = "weights"}));
  };
  for (const Hierarchy& hierarchy : {Hierarchy{.ranks_in_group = 2, .sequential_from = 0},
                                     Hierarchy{.ranks_in_group = 2, .overlapped_from = 0}}) {
    const std::string sum = failure_of_rank_0(hierarchy, Call::sum);
    CHECK_THAT(sum,
               Contains("all_reduce of gradients") && Contains("waiting for world rank 1:") &&
                   Contains("no answer within 0.1"));
    const std::string gather = failure_of_rank_0(hierarchy, Call::gather);
    CHECK_THAT(gather,
               Contains("all_gather of weights") && Contains("no answer within 0.1") &&
                   Catch::Matches("[^]*waiting for world ranks? (1, )?2:[^]*"));
  }
}

TEST_CASE("once the end is expected, waits are short") {
  const auto world =
      make_local_world(2, {.end_grace_seconds = 0.05, .end_expected = end_is_expected});
  GuardedTensor data = ones(3);
  REQUIRE_THAT(failure_of(world[0]->receive(data, 1, {.what = "activations"})),
               Contains("receive from rank 1 of activations") && Contains("told to end"));
}

TEST_CASE("a wait that nobody begins has no limit") {
  const auto world = make_local_world(2, {.timeout_seconds = 0.05});
  GuardedTensor in = ones(3);
  GuardedTensor out = ones(3);
  Transfer received = world[0]->receive(in, 1, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  world[1]->send(out, 0, {}).wait();
  const std::string text = failure_of(std::move(received));
  REQUIRE(text.empty());
}

TEST_CASE("ranks that disagree about a size are told, not hung") {
  const auto world = make_local_world(2);
  GuardedTensor in = ones(3);
  GuardedTensor out = ones(4);
  Transfer received = world[0]->receive(in, 1, {});
  REQUIRE_THAT(failure_of(world[1]->send(out, 0, {})), Contains("bytes"));
  const std::string text = failure_of(std::move(received));
  REQUIRE_THAT(text, Contains("bytes"));
}

TEST_CASE("a handle that is dropped waits") {
  const auto world = make_local_world(2);
  GuardedTensor in(DType::f32, Shape{3});
  GuardedTensor out = ones(3);
  std::thread sender([&] { world[1]->send(out, 0, {}).wait(); });
  { const Transfer dropped = world[0]->receive(in, 1, {}); }
  REQUIRE(in.values() == out.values());
  sender.join();
}

}  // namespace slackline::testing
