#include "parallel/sync/arriving_bytes.h"

#include <cstddef>
#include <vector>

#include "parallel/sync/rank_sync.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

// Counts for four data ranks in groups of two; each sum receives less than a page, and a window
// lets two of a group through.
std::size_t pages_of(DataStrategy strategy) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kShortestMessage = 1;
  const MeshJob job{
      .model = {.layers = 4, .hidden = 6, .heads = 1, .sequence = 5, .vocab = 13, .ffn = 8},
      .parallel = {.data = 4, .group = 2, .data_strategy = strategy},
      .micro_batch = {.B = 1, .T = 5},
      .num_micro_batches = 2};
  const RankSync made(job, MeshPlace{});
  RankPlan rank = made.rank;
  rank.sync.bucket_bytes = 1;  // a layer a bucket
  const SyncPlan plan = make_sync_plan(made.parameters, rank);
  const auto plain = [&](const SyncOp& op) { return std::vector{plain_call(op, plan)}; };
  const std::size_t bytes = arriving_bytes(plan, plain, kShortestMessage);
  REQUIRE(bytes % kPage == 0);
  return bytes / kPage;
}

}  // namespace

TEST_CASE("memory that sums arrive in serves as many as may be under way") {
  REQUIRE(pages_of(DataStrategy::replicate) == 2);
  // One in the group, since its sum between groups, of which there are two, waits for it.
  REQUIRE(pages_of(*data_strategy_named("NNI")) == 3);
  // In passes a layer's sum in the group is waited for after the next layer's has begun.
  REQUIRE(pages_of(*data_strategy_named("IIG")) == 4);
}

}  // namespace slackline
