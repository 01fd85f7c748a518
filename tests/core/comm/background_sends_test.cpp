#include "core/comm/background_sends.h"

#include <algorithm>
#include <vector>

#include "core/comm/cluster.h"
#include "core/comm/world.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

Message message_of(int rank, std::size_t piece) {
  return {.self = rank, .piece = piece};
}

// Pieces of what may go now.
std::vector<std::size_t> take_all(BackgroundSends& sends) {
  std::vector<std::size_t> pieces;
  while (const std::optional<Message> message = sends.next()) {
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

TEST_CASE("background sends of one rank do not hold up another's") {
  BackgroundSends sends;
  for (std::size_t piece = 0; piece < 3; ++piece) {
    sends.add(message_of(0, piece), 1);
    sends.add(message_of(1, 10 + piece), 1);
  }
  REQUIRE(take_all(sends) == std::vector<std::size_t>{0, 1, 10, 11});
}

// Twenty sums fill the link for 0.4 s; the message comes after them and needs 2 ms.
TEST_CASE("a message overtakes the sums of a background group on its link") {
  Cluster cluster;
  cluster.nodes = {{.count = 2, .devices = 1}};
  cluster.network_link = {.bytes_per_second = 1e6, .shared_by = Cluster::SharedBy::node};
  run_local_ranks(2, {.links = cluster}, [](Communicator& world) {
    const auto background = world.group("background", {0, 1}, Urgency::background);
    std::vector<GuardedTensor> tensors;
    tensors.reserve(20);
    for (int i = 0; i < 20; ++i) {
      tensors.emplace_back(DType::f32, Shape{5000});
      tensors.back().fill(1.0);
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
    REQUIRE(message.values().front() == 0.0);
    for (const GuardedTensor& tensor : tensors) {
      REQUIRE(tensor.values() == std::vector<double>(5000, 2.0));
    }
    const TransferRecord message_record = world.take_records().front();
    const std::vector<TransferRecord> records = background->take_records();
    REQUIRE(records.size() == sums.size());
    double last = 0.0;
    for (const TransferRecord& record : records) {
      last = std::max(last, record.finished);
    }
    // It stands behind two sends; without precedence behind the first halves of all, half the time.
    REQUIRE(message_record.finished - records.front().submitted <
            0.3 * (last - records.front().submitted));
  });
}

}  // namespace slackline::testing
