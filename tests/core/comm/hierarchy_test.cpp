#include "core/comm/hierarchy.h"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "core/comm/engine/collective_moves.h"
#include "core/comm/world.h"
#include "tests/core/comm/groups_of_ranks.h"
#include "tests/core/comm/hierarchy_checks.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

using Catch::Contains;
using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

constexpr int kGroups[] = {1, 2, 3, 4, 5, 8};
constexpr int kRanks[] = {1, 2, 3, 4, 8};

constexpr Way kWays[] = {Way::sequential, Way::overlapped};

// Bytes that steps send inside a group and between groups, and how far scratch is written.
struct Walked {
  std::size_t inside = 0;
  std::size_t across = 0;
  std::size_t scratch = 0;
};

bool is_in(const std::byte* place, const Tensor& data) {
  const auto* begin = static_cast<const std::byte*>(data.raw());
  return place >= begin && place < begin + data.bytes();
}

Walked walk(const Moves& moves, int rank, int ranks_in_group, const Tensor& data) {
  Walked walked;
  for (const Step& step : moves.steps) {
    for (const Piece& piece : step.pieces) {
      if (piece.way == Message::Way::send) {
        const bool inside = piece.peer / ranks_in_group == rank / ranks_in_group;
        (inside ? walked.inside : walked.across) += piece.bytes;
      } else if (!is_in(piece.data, data)) {
        const auto end = static_cast<std::size_t>(piece.data + piece.bytes - moves.scratch.data());
        walked.scratch = std::max(walked.scratch, end);
      }
    }
  }
  return walked;
}

void check_bytes(const CollectiveCall& call, int size, const Tensor& data) {
  const int ranks = call.hierarchy.ranks_in_group;
  for (int rank = 0; rank < size; ++rank) {
    INFO(name_of(call.kind) << " of " << call.elements << ", rank " << rank << " of " << size
                            << " in groups of " << ranks);
    const Moves moves = moves_of({.kind = call.kind, .data = data, .order = call.order},
                                 rank,
                                 size,
                                 std::make_shared<ScratchPool>(),
                                 call.hierarchy);
    const Walked walked = walk(moves, rank, ranks, data);
    const std::size_t across = bytes_sent_across_by(call, rank, size);
    REQUIRE(walked.across == across);
    REQUIRE(walked.inside + across == bytes_sent_by(call, rank, size));
    REQUIRE(walked.scratch == scratch_bytes_of(call, rank, size));
  }
}

// Rank 1 of 6 goes; the text that a wait of each other one ends with.
std::vector<std::string> texts_of_failure(Way way) {
  std::vector<std::string> texts(6);
  REQUIRE_THROWS_WITH(
      run_local_ranks(6,
                      {},
                      [&](Communicator& world) {
                        world.set_hierarchy(hierarchy_of(3, way));
                        if (world.rank() == 1) {
                          throw std::runtime_error("out of luck");
                        }
                        GuardedTensor data(DType::f32, Shape{5000});
                        data.fill(1.0);
                        try {
                          world.all_reduce(data, {.what = "gradients"}, {.runs = {3, 1}}).wait();
                        } catch (const CommError& failure) {
                          texts[static_cast<std::size_t>(world.rank())] = failure.what();
                          throw;
                        }
                      }),
      "out of luck");
  return texts;
}

}  // namespace

TEST_CASE("through groups of every shape: the bits of direct calls, the bytes of the formulas") {
  for (const int groups : kGroups) {
    for (const int ranks : kRanks) {
      INFO(groups << " groups of " << ranks << " ranks");
      REQUIRE_NOTHROW(run_local_ranks(
          groups * ranks, {}, [&](Communicator& world) { check_groups_of(world, ranks); }));
    }
  }
}

TEST_CASE("local: sums through groups have an order, and keep apart") {
  for (const CommCheck& check : hierarchy_checks()) {
    for (const int size : {1, 4, 6}) {
      INFO(check.claim << ", on " << size);
      REQUIRE_NOTHROW(run_local_ranks(size, {.longest_background = 4096}, check.run));
    }
  }
}

TEST_CASE("bytes inside groups, between them and of scratch equal the formulas") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int groups : kGroups) {
      for (const int ranks : kRanks) {
        if (groups == 1 || ranks == 1) {
          continue;
        }
        for (const std::size_t count : {1, 7, 64, 1025, 4099}) {
          GuardedTensor data(dtype, Shape{static_cast<std::int64_t>(count)});
          for (const Way way : kWays) {
            for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather}) {
              check_bytes({.kind = kind,
                           .elements = count,
                           .element_size = size_of(dtype),
                           .order = {.runs = {ranks, 1}},
                           .hierarchy = hierarchy_of(ranks, way)},
                          groups * ranks,
                          data);
            }
          }
        }
      }
    }
  }
}

TEST_CASE(
    "through groups, a rank's bytes between groups are direct ones over the ranks in a group") {
  CollectiveCall call{.kind = Kind::all_reduce,
                      .elements = 48'000,
                      .order = {.runs = {4, 1}},
                      .hierarchy = {.ranks_in_group = 4}};
  const std::size_t direct = bytes_sent_across_by(call, 5, 12);
  call.hierarchy.sequential_from = 0;
  REQUIRE(direct == 4 * bytes_sent_across_by(call, 5, 12));
}

TEST_CASE("overlapped, a slice moves between groups in every step but one, beside a block inside") {
  constexpr int kNumGroups = 4;
  constexpr int kNumRanks = 3;
  GuardedTensor data(DType::f32, Shape{1200});
  const Moves moves =
      moves_of({.kind = Kind::all_reduce, .data = data, .order = {.runs = {kNumRanks, 1}}},
               4,
               kNumGroups * kNumRanks,
               std::make_shared<ScratchPool>(),
               hierarchy_of(kNumRanks, Way::overlapped));
  REQUIRE(moves.steps.size() == 2UL * kNumGroups);
  for (std::size_t k = 0; k < moves.steps.size(); ++k) {
    int inside = 0;
    int across = 0;
    for (const Piece& piece : moves.steps[k].pieces) {
      if (piece.way == Message::Way::send) {
        (piece.peer / kNumRanks == 4 / kNumRanks ? inside : across) += 1;
      }
    }
    CHECK(inside == kNumRanks - 1);
    CHECK(across == (k == 0 || k + 1 == moves.steps.size() ? 0 : 1));
  }
}

TEST_CASE("a way follows from bytes and order; without two levels it is the direct one") {
  const Hierarchy hierarchy{.ranks_in_group = 4, .sequential_from = 100, .overlapped_from = 1000};
  const auto way_of_gather = [&](std::size_t bytes, int size) {
    return way_of(
        {.kind = Kind::all_gather, .elements = bytes, .element_size = 1, .hierarchy = hierarchy},
        size);
  };
  const auto way_of_sum = [&](Kind kind, SumOrder order) {
    return way_of({.kind = kind, .elements = 250, .order = order, .hierarchy = hierarchy}, 8);
  };
  CHECK(way_of_gather(99, 8) == Way::direct);
  CHECK(way_of_gather(100, 8) == Way::sequential);
  CHECK(way_of_gather(1000, 8) == Way::overlapped);
  CHECK(way_of_gather(1000, 4) == Way::direct);
  for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter}) {
    CHECK(way_of_sum(kind, {.runs = {4, 1}}) == Way::overlapped);
    CHECK(way_of_sum(kind, {.runs = {2, 2}}) == Way::overlapped);
    CHECK(way_of_sum(kind, SumOrder::ranks) == Way::direct);
    CHECK(way_of_sum(kind, {.runs = {2, 1}}) == Way::direct);
  }
  CHECK(Hierarchy{}.is_flat());
  CHECK_FALSE(hierarchy.is_flat());
  CHECK_FALSE(hierarchy.fits(6));
}

TEST_CASE("a rank that throws ends what the others wait for in groups") {
  for (const Way way : kWays) {
    const std::vector<std::string> texts = texts_of_failure(way);
    for (const int rank : {0, 2, 3, 4, 5}) {
      CHECK_THAT(texts[static_cast<std::size_t>(rank)],
                 Contains("all_reduce of gradients") && Contains("out of luck"));
    }
  }
}

TEST_CASE("a sum through groups without answer names whom it waits for, between groups too") {
  const auto world = make_local_world(4, {.timeout_seconds = 0.1});
  std::vector<GuardedTensor> data;
  std::vector<Transfer> transfers;
  for (const int rank : {0, 1}) {  // group 1 does not come
    Communicator& comm = *world[static_cast<std::size_t>(rank)];
    comm.set_hierarchy(hierarchy_of(2, Way::sequential));
    data.emplace_back(DType::f32, Shape{5000}).fill(1.0);
    transfers.push_back(comm.all_reduce(data.back(), {}, {.runs = {2, 1}}));
  }
  CHECK_THROWS_WITH(transfers[0].wait(),
                    Contains("waiting for world rank 2: ") && Contains("no answer within 0.1"));
  CHECK_THROWS_AS(transfers[1].wait(), CommError);
}

}  // namespace slackline::testing
