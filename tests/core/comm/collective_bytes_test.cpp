#include "core/comm/collective_bytes.h"

#include <memory>
#include <vector>

#include "core/comm/engine/collective_moves.h"
#include "core/comm/world.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

using Kind = TransferRecord::Kind;

constexpr std::size_t kCounts[] = {0, 1, 3, 16, 1024, 1025, 4099, 16384, 16385, 20007};

// What leaves the group, for every size of groups.
void require_bytes_across(const Moves& moves, CollectiveCall call, int rank, int size) {
  for (int ranks_in_group = 1; ranks_in_group <= size; ++ranks_in_group) {
    if (size % ranks_in_group == 0) {
      INFO("groups of " << ranks_in_group);
      call.hierarchy.ranks_in_group = ranks_in_group;
      REQUIRE(moves.bytes_sent_across(rank, ranks_in_group) ==
              bytes_sent_across_by(call, rank, size));
    }
  }
}

}  // namespace

TEST_CASE("bytes sent equal the formulas on up to 16 ranks") {
  for (const Kind kind :
       {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all}) {
    for (int size = 2; size <= 16; ++size) {
      for (std::size_t count : kCounts) {
        count -= kind == Kind::all_to_all ? count % static_cast<std::size_t>(size) : 0;
        GuardedTensor data(DType::f32, Shape{static_cast<std::int64_t>(count)});
        const CollectiveCall call{.kind = kind, .elements = count};
        for (int rank = 0; rank < size; ++rank) {
          INFO(name_of(kind) << " of " << count << ", rank " << rank << " of " << size);
          const Moves moves = moves_of({.kind = kind, .data = data, .to = data},
                                       rank,
                                       size,
                                       std::make_shared<ScratchPool>(),
                                       call.hierarchy);
          REQUIRE(moves.bytes_sent() == bytes_sent_by(call, rank, size));
          require_bytes_across(moves, call, rank, size);
        }
      }
    }
  }
}

TEST_CASE("an all_reduce in slices sends twice the tensor to all ranks but one") {
  std::size_t total = 0;
  for (int rank = 0; rank < 7; ++rank) {
    total += bytes_sent_by({.kind = Kind::all_reduce, .elements = 10'001}, rank, 7);
  }
  REQUIRE(total == std::size_t{2} * 6 * 4 * 10'001);
}

TEST_CASE("communicators count what the formulas say") {
  run_local_ranks(3, {}, [](Communicator& world) {
    GuardedTensor data(DType::f32, Shape{5000});
    data.fill(1.0);
    world.all_reduce(data, {}).wait();
    expect(
        world.bytes_sent() ==
            bytes_sent_by({.kind = Kind::all_reduce, .elements = 5000}, world.rank(), world.size()),
        world,
        "bytes of an all_reduce");
    const auto group = world.group("two", {0, 1, 2});
    expect(world.bytes_sent_across() == world.bytes_sent(), world, "each rank is a group at first");
    expect(group->bytes_sent() == 0, world, "groups count for themselves");
    const std::size_t before = world.bytes_sent();
    group->barrier({}).wait();
    expect(world.bytes_sent() == before, world, "setup is not payload");
  });
}

TEST_CASE("one rank sends nothing") {
  REQUIRE(bytes_sent_by({.kind = Kind::all_reduce, .elements = 5000}, 0, 1) == 0);
}

TEST_CASE("slices cover all elements, differing by one at most") {
  for (int size = 1; size <= 9; ++size) {
    for (const std::size_t count : {0, 1, 5, 9, 100}) {
      std::size_t end = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Slice slice = slice_of(count, rank, size);
        REQUIRE(slice.begin == end);
        REQUIRE(slice.count() - count / static_cast<std::size_t>(size) <= 1);
        end = slice.end;
      }
      REQUIRE(end == count);
    }
  }
}

}  // namespace slackline::testing
