#include "core/comm/links/scaled_communicator.h"

#include <cstdint>
#include <vector>

#include "core/comm/hierarchy.h"
#include "core/comm/links/cluster.h"
#include "core/comm/world.h"
#include "tests/core/comm/groups_of_ranks.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

using testing::everyone;

constexpr TransferNote kNote{.what = "test"};

}  // namespace

TEST_CASE("a scaled communicator moves the first elements of a message and counts those") {
  run_local_ranks(2, {}, [](Communicator& world) {
    const auto cut = scaled(world.group("tensor", everyone(world)), 4.0);
    std::vector<float> sums(10, 1.0F);
    cut->all_reduce(Tensor(std::span(sums)), kNote, SumOrder::ranks).wait();
    REQUIRE(sums == std::vector<float>{2, 2, 2, 1, 1, 1, 1, 1, 1, 1});
    // All-reduce of 3 of 10 elements: each rank sends what the other sums, and what it summed.
    REQUIRE(cut->bytes_sent() == 3 * sizeof(float));

    std::vector<float> message(8, static_cast<float>(world.rank()));
    const Tensor data{std::span(message)};
    (world.rank() == 0 ? cut->send(data, 1, kNote) : cut->receive(data, 0, kNote)).wait();
    REQUIRE(message[1] == 0.0F);
    REQUIRE(message[2] == static_cast<float>(world.rank()));

    std::vector<std::uint8_t> frame(9, static_cast<std::uint8_t>(1 - world.rank()));
    const Tensor bytes{std::span(frame)};
    (world.rank() == 0 ? cut->send(bytes, 1, kNote) : cut->receive(bytes, 0, kNote)).wait();
    REQUIRE(frame[2] == 1);
    REQUIRE(frame[3] == 1 - world.rank());

    std::vector<float> from = {0, 1, 2, 3, 4, 5, 6, 7};
    std::vector<float> to(8, -1.0F);
    cut->all_to_all(Tensor(std::span(from)), Tensor(std::span(to)), kNote).wait();
    REQUIRE(to[2] == -1.0F);
    REQUIRE(to[0] == static_cast<float>(world.rank()));
  });
}

TEST_CASE("a scaled communicator leaves accounts whole, and scale 1 is none") {
  run_local_ranks(2, {}, [](Communicator& world) {
    const auto cut = scaled(world.group("data", everyone(world)), 100.0);
    std::vector<double> sums(5, 1.0);
    cut->all_reduce(Tensor(std::span(sums)), kNote, SumOrder::ranks).wait();
    REQUIRE(sums == std::vector<double>(5, 2.0));

    auto inner = world.group("data", everyone(world));
    const Communicator* plain = inner.get();
    REQUIRE(scaled(std::move(inner), 1.0).get() == plain);
    REQUIRE(scaled(nullptr, 2.0) == nullptr);
  });
}

// 20,000 bytes a second, where a cut message of 1,000 bytes takes 50 ms, and a whole one of 16,000,
// which takes 0.8 s else, 0.8 ms.
TEST_CASE("accounts pass slow links as fast as if they were cut") {
  Cluster cluster{.nodes = {{.count = 2, .devices = 1}}};
  cluster.network_link = {.latency_seconds = 1e-3, .bytes_per_second = 20000.0};
  run_local_ranks(2, {.links = cluster, .message_scale = 1000.0}, [](Communicator& world) {
    const auto cut = scaled(world.group("data", everyone(world)), 1000.0);
    const auto seconds_of = [&](const Tensor& data) {
      const double begin = world.now();
      (world.rank() == 0 ? cut->send(data, 1, kNote) : cut->receive(data, 0, kNote)).wait();
      return world.rank() == 0 ? 0.0 : world.now() - begin;
    };
    std::vector<float> message(250000, 1.0F);
    std::vector<double> account(2000, 1.0);
    const double of_message = seconds_of(Tensor(std::span(message)));
    const double of_account = seconds_of(Tensor(std::span(account)));
    if (world.rank() == 1) {
      REQUIRE(of_message > 0.04);
      REQUIRE(of_account < 0.4);
    }
  });
}

TEST_CASE("a cut message goes through groups as the whole one would") {
  run_local_ranks(4, {}, [](Communicator& world) {
    const auto cut = scaled(world.group("data", everyone(world)), 4.0);
    cut->set_hierarchy({.ranks_in_group = 2, .overlapped_from = 4 * sizeof(float)});
    std::vector<float> values(4, world.rank() == 0 ? 1.0F : 0.0F);
    cut->all_gather(Tensor(std::span(values)), kNote).wait();
    REQUIRE(values.front() == 1.0F);
    // The one element left is rank 0's; ranks 0 and 2 pass it on inside their groups.
    const std::size_t passed[] = {2, 0, 1, 0};
    REQUIRE(cut->bytes_sent() == passed[world.rank()] * sizeof(float));
  });
}

}  // namespace slackline
