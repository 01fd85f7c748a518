#include "core/comm/engine/background_sends.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "core/comm/links/cluster.h"
#include "core/comm/world.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

using Clock = BackgroundSends::Clock;

constexpr int kPeer = 9;
constexpr std::size_t kLongest = 100;  // bytes

Message message_of(int rank, std::size_t piece, int peer = kPeer) {
  return {.self = rank, .peer = peer, .bytes = kLongest, .piece = piece};
}

// A node for each rank.
std::vector<int> nodes_of_their_own() {
  std::vector<int> nodes(kPeer + 2);
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

// Half a second keeps 500 bytes on their way: with two messages more the window is 700 bytes.
Cluster half_a_second(Cluster::SharedBy shared_by) {
  Cluster cluster;
  cluster.network_link = {
      .latency_seconds = 0.5, .bytes_per_second = 1000.0, .shared_by = shared_by};
  return cluster;
}

std::vector<std::size_t> numbers(std::size_t begin, std::size_t end) {
  std::vector<std::size_t> list(end - begin);
  std::iota(list.begin(), list.end(), begin);
  return list;
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
  BackgroundSends sends(kLongest);
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

TEST_CASE("background sends of younger operations hold up none of an older one") {
  BackgroundSends sends(kLongest);
  const bool known = GENERATE(false, true);
  if (known) {
    sends.set_links(half_a_second(Cluster::SharedBy::pair), nodes_of_their_own());
  }
  for (std::size_t piece = 0; piece < 9; ++piece) {
    sends.add(message_of(0, piece), 7);
  }
  const std::size_t window = take_all(sends).size();
  REQUIRE(window == (known ? 7 : 2));
  for (std::size_t piece = 20; piece < 29; ++piece) {
    sends.add(message_of(0, piece), 6);
  }
  if (!known) {
    REQUIRE(take_all(sends) == numbers(20, 22));
  } else {
    // The first one of the younger operation should have arrived after 0.1 s and a latency.
    constexpr std::chrono::milliseconds kArrival{600};
    const Clock::time_point begin{};
    REQUIRE(take_all(sends, begin).empty());
    REQUIRE(sends.next_due() == begin + kArrival);
    REQUIRE(take_all(sends, begin + kArrival) == numbers(20, 21));
  }
}

TEST_CASE("short background sends go together, up to the bytes of two long ones") {
  BackgroundSends sends(kLongest);
  for (std::size_t piece = 0; piece < 10; ++piece) {
    Message message = message_of(0, piece);
    message.bytes = kLongest / 4;
    sends.add(message, 1);
  }
  REQUIRE(take_all(sends) == numbers(0, 8));
}

TEST_CASE("background sends fill what a link has on its way, and two messages more") {
  BackgroundSends sends(kLongest);
  sends.set_links(half_a_second(Cluster::SharedBy::pair), nodes_of_their_own());
  for (std::size_t piece = 0; piece < 9; ++piece) {
    sends.add(message_of(0, piece), 1);
    sends.add(message_of(0, 10 + piece, kPeer + 1), 2);
  }
  std::vector<std::size_t> both = numbers(0, 7);
  std::ranges::copy(numbers(10, 17), std::back_inserter(both));
  REQUIRE(take_all(sends) == both);
  sends.done(message_of(0, 3));
  REQUIRE(take_all(sends) == numbers(7, 8));
}

TEST_CASE("a short background send behind long ones does not leave its link idle") {
  BackgroundSends sends(kLongest);
  sends.set_links(half_a_second(Cluster::SharedBy::pair), nodes_of_their_own());
  for (std::size_t piece = 0; piece < 9; ++piece) {
    Message message = message_of(0, piece);
    message.bytes = piece == 5 ? 1 : kLongest;
    sends.add(message, 1);
  }
  REQUIRE(take_all(sends) == numbers(0, 7));  // 601 of 700 bytes
}

TEST_CASE("background sends to all ranks that one adapter serves share its window, two to each") {
  BackgroundSends sends(kLongest);
  sends.set_links(half_a_second(Cluster::SharedBy::node), nodes_of_their_own());
  for (std::size_t piece = 0; piece < 9; ++piece) {
    sends.add(message_of(0, piece), 1);
    sends.add(message_of(0, 10 + piece, kPeer + 1), 2);
  }
  std::vector<std::size_t> both = numbers(0, 7);
  std::ranges::copy(numbers(10, 12), std::back_inserter(both));
  REQUIRE(take_all(sends) == both);
}

TEST_CASE("an urgent message holds up background sends until it has left its link") {
  BackgroundSends sends(kLongest);
  sends.set_links(half_a_second(Cluster::SharedBy::pair), nodes_of_their_own());
  sends.add(message_of(0, 0), 1);
  const Clock::time_point begin{};
  REQUIRE(take_all(sends, begin) == numbers(0, 1));
  // Behind 100 bytes, and 100 bytes itself: 0.2 s.
  sends.begin_urgent(message_of(0, 1), begin);
  sends.add(message_of(0, 2), 1);
  const auto left = begin + std::chrono::milliseconds(200);
  REQUIRE(take_all(sends, left - std::chrono::milliseconds(1)).empty());
  REQUIRE(sends.next_due() == left);
  REQUIRE(take_all(sends, left) == numbers(2, 3));
  REQUIRE_FALSE(sends.next_due().has_value());
  sends.end_urgent(message_of(0, 1));
}

TEST_CASE("background sends to one rank do not hold up those to another, nor another's") {
  BackgroundSends sends(kLongest);
  sends.add(message_of(0, 20, kPeer + 1), 2);
  for (std::size_t piece = 0; piece < 3; ++piece) {
    sends.add(message_of(0, piece), 1);
    sends.add(message_of(1, 10 + piece), 1);
  }
  REQUIRE(take_all(sends) == std::vector<std::size_t>{0, 1, 20, 10, 11});
}

TEST_CASE("background sends begin while no urgent one is under way, or none that moves") {
  BackgroundSends sends(kLongest);
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
  BackgroundSends sends(kLongest);
  sends.add(message_of(1, 0, 2), 1);
  sends.add(message_of(1, 1, 0), 1);
  REQUIRE(take_all(sends) == std::vector<std::size_t>{0, 1});
}

TEST_CASE("sends that wait for their receiver do not hold up the next ones for good") {
  BackgroundSends sends(kLongest);
  for (std::size_t piece = 0; piece < 4; ++piece) {
    sends.add(message_of(0, piece), 1);
  }
  const Clock::time_point begin{};
  REQUIRE(take_all(sends, begin) == std::vector<std::size_t>{0, 1});
  REQUIRE(take_all(sends, begin + BackgroundSends::kPatience / 2).empty());
  REQUIRE(take_all(sends, begin + 2 * BackgroundSends::kPatience) ==
          std::vector<std::size_t>{2, 3});
}

// 200 KB each way take 50 ms at the link's speed, and two latencies of 50 ms; two messages at a
// time would take 25 latencies, 1.3 s. Sleeps of a busy machine end late: twice the time is
// allowed.
TEST_CASE("a background sum over a long link takes its bytes' time and a few latencies") {
  Cluster cluster;
  cluster.nodes = {{.count = 2, .devices = 1}};
  cluster.network_link = {.latency_seconds = 0.05, .bytes_per_second = 4e6};
  const WorldOptions options{.links = cluster, .longest_background = 4000};
  run_local_ranks(2, options, [&](Communicator& world) {
    const auto background = world.group("background", {0, 1}, Urgency::background);
    GuardedTensor tensor(DType::f32, Shape{50'000});
    tensor.fill(1.0);
    world.barrier({}).wait();
    background->record_transfers(true);
    background->all_reduce(tensor, {}).wait();
    const TransferRecord record = background->take_records().front();
    expect(record.finished - record.submitted < 2.0 * 0.15, world, "the time of a long sum");
  });
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
