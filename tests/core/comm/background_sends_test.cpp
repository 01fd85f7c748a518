#include "core/comm/background_sends.h"

#include <algorithm>
#include <vector>

#include "core/comm/cluster.h"
#include "core/comm/world.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

using Clock = BackgroundSends::Clock;

constexpr int kPeer = 9;

Message message_of(int rank, std::size_t piece, int peer = kPeer) {
  return {.self = rank, .peer = peer, .piece = piece};
}

// Pieces of what may go now.
std::vector<std::size_t> take_all(BackgroundSends& sends, Clock::time_point now = {}) {
  std::vector<std::size_t> pieces;
  while (const std::optional<Message> message = sends.next(now)) {
    pieces.push_back(message->piece);
  }
  return pieces;
}

}  // namespace

TEST_CASE("background sends go two at a time, the oldest operation first") {
  BackgroundSends sends;
  sends.add(message_of(0, 5), 7);
  sends.add(message_of(0, 6), 7);
  sends.add(message_of(0, 1), 9);
  REQUIRE(take_all(sends) == std::vector<std::size_t>{5, 6});
  sends.add(message_of(0, 2), 8);
  REQUIRE(take_all(sends).empty());
  sends.done(message_of(0, 6));
  REQUIRE(take_all(sends) == std::vector<std::size_t>{2});
  sends.done(message_of(0, 5));
  sends.done(message_of(0, 2));
  REQUIRE(take_all(sends) == std::vector<std::size_t>{1});
}

TEST_CASE("background sends to one rank do not hold up those to another, nor another's") {
  BackgroundSends sends;
  sends.add(message_of(0, 20, kPeer + 1), 2);
  for (std::size_t piece = 0; piece < 3; ++piece) {
    sends.add(message_of(0, piece), 1);
    sends.add(message_of(1, 10 + piece), 1);
  }
  REQUIRE(take_all(sends) == std::vector<std::size_t>{0, 1, 10, 11, 20});
}

TEST_CASE("background sends begin while no urgent one is under way, or none that moves") {
  BackgroundSends sends;
  const Clock::time_point begin{};
  sends.begin_urgent(message_of(0, 0), begin);
  sends.begin_urgent(message_of(0, 1), begin + std::chrono::milliseconds(1));
  sends.add(message_of(0, 5), 1);
  sends.add(message_of(1, 6), 1);
  REQUIRE(take_all(sends, begin) == std::vector<std::size_t>{6});
  sends.end_urgent(message_of(0, 0));
  REQUIRE(take_all(sends, begin).empty());
  SECTION("it has ended") {
    sends.end_urgent(message_of(0, 1));
    REQUIRE(take_all(sends, begin) == std::vector<std::size_t>{5});
  }
  SECTION("it has taken too long") {
    REQUIRE(take_all(sends, begin + 2 * BackgroundSends::kPatience) == std::vector<std::size_t>{5});
  }
}

TEST_CASE("background sends keep the order of a step over its receivers") {
  BackgroundSends sends;
  sends.add(message_of(1, 0, 2), 1);
  sends.add(message_of(1, 1, 0), 1);
  REQUIRE(take_all(sends) == std::vector<std::size_t>{0, 1});
}

TEST_CASE("sends that wait for their receiver do not hold up the next ones for good") {
  BackgroundSends sends;
  for (std::size_t piece = 0; piece < 4; ++piece) {
    sends.add(message_of(0, piece), 1);
  }
  const Clock::time_point begin{};
  REQUIRE(take_all(sends, begin) == std::vector<std::size_t>{0, 1});
  REQUIRE(take_all(sends, begin + BackgroundSends::kPatience / 2).empty());
  REQUIRE(take_all(sends, begin + BackgroundSends::kPatience) == std::vector<std::size_t>{2, 3});
}

// Sums fill the link for 0.4 s; the message comes after them and needs 2 ms.
void overtake(const std::vector<long>& elements, std::size_t longest_background) {
  Cluster cluster;
  cluster.nodes = {{.count = 2, .devices = 1}};
  cluster.network_link = {.bytes_per_second = 1e6, .shared_by = Cluster::SharedBy::node};
  const WorldOptions options{.links = cluster, .longest_background = longest_background};
  run_local_ranks(2, options, [&](Communicator& world) {
    const auto background = world.group("background", {0, 1}, Urgency::background);
    std::vector<GuardedTensor> tensors;
    tensors.reserve(elements.size());
    for (const long count : elements) {
      tensors.emplace_back(DType::f32, Shape{count}).fill(1.0);
    }
    GuardedTensor message(DType::f32, Shape{500});
    message.fill(world.rank());
    background->record_transfers(true);
    world.record_transfers(true);
    std::vector<Transfer> sums;
    sums.reserve(tensors.size());
    for (GuardedTensor& tensor : tensors) {
      sums.push_back(background->all_reduce(tensor, {}));
    }
    (world.rank() == 0 ? world.send(message, 1, {}) : world.receive(message, 0, {})).wait();
    for (Transfer& sum : sums) {
      sum.wait();
    }
    expect(message.values().front() == 0.0, world, "the message");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      REQUIRE(tensors[i].values() ==
              std::vector<double>(static_cast<std::size_t>(elements[i]), 2.0));
    }
    const TransferRecord message_record = world.take_records().front();
    const std::vector<TransferRecord> records = background->take_records();
    expect(records.size() == sums.size(), world, "records");
    double last = 0.0;
    for (const TransferRecord& record : records) {
      last = std::max(last, record.finished);
    }
    // It stands behind two sends; else behind the first halves of all, half the time.
    const double begin = records.front().submitted;
    expect(message_record.finished - begin < 0.3 * (last - begin), world, "the message overtakes");
  });
}

TEST_CASE("a message overtakes the sums of a background group on its link") {
  overtake(std::vector<long>(20, 5000), std::size_t{1} << 20U);
}

TEST_CASE("a message gets in between the parts of a long background sum") {
  overtake({100'001}, 3000);
}

}  // namespace slackline::testing
