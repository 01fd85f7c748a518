// Codes of matrices that all tensor ranks have do not depend on what each has of others.

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/choose/compression_policy.h"
#include "parallel/plan/coded_gather.h"
#include "parallel/plan/coded_round.h"
#include "parallel/sync/rank_sync.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

constexpr CodecSetting kInteger{.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::group};
constexpr CodecSetting kCast{.kind = CodecKind::cast};

// Of 9 rows of the table one tensor rank has 4 and one 5; both have all positions.
MeshJob job_of(const std::string& letters, int tensor) {
  MeshJob job{.model = {.layers = 2,
                        .hidden = 32,
                        .heads = 4,
                        .sequence = 16,
                        .vocab = 9,
                        .ffn = 96,
                        .tie_embeddings = false},
              .micro_batch = {.B = 2, .T = 16},
              .num_micro_batches = 2};
  job.parallel.tensor = tensor;
  job.parallel.data = 2;
  job.parallel.data_strategy = *data_strategy_named(letters);
  return job;
}

bool holds_positions(const GradientBucket& bucket) {
  return std::ranges::any_of(bucket.holds, [](const Parameter* parameter) {
    return parameter->spec.role == ParameterRole::position_embedding;
  });
}

}  // namespace

TEST_CASE("gathers of positions beside shards of a table are not coded by shared scales") {
  for (const int tensor : {1, 2}) {
    for (const CodecSetting& setting : {kInteger, kCast}) {
      const MeshJob job = job_of("GGG", tensor);
      CompressionPlan plan;
      for (const schedule::TransferClass& members : gather_classes(job)) {
        plan.classes.push_back({.members = members, .codec = setting});
      }
      const RankSync rank(job, {});
      for (std::size_t i = 0; i < rank.plan.buckets.size(); ++i) {
        const GradientBucket& bucket = rank.plan.buckets[i];
        if (bucket.kind == GradientBucket::Kind::layers) {
          const bool plain = tensor > 1 && setting == kInteger && holds_positions(bucket);
          CHECK(coded_gather(rank.plan, i, plan).has_value() != plain);
        }
      }
    }
  }
}

TEST_CASE("rounds code positions where no tensor ranks have them in common") {
  for (const auto& [letters, tensor, coded] : std::vector<std::tuple<std::string, int, bool>>{
           {"NNN", 1, true}, {"NNG", 1, true}, {"NNN", 2, false}, {"NNG", 2, false}}) {
    INFO(letters << ", tensor " << tensor);
    bool has_positions = false;
    std::size_t matrices = 0;
    for (int data = 0; data < 2; ++data) {
      const RankSync rank(job_of(letters, tensor), {.data = data});
      const CodedBucket round =
          coded_round(outer_shares(rank.plan.owned), rank.plan.owned, kInteger, {.workers = 2});
      for (const CodedSum& sum : round.sums) {
        for (const SummedPart& matrix : sum.matrices) {
          has_positions = has_positions || matrix.name().starts_with("wpe");
        }
        matrices += sum.matrices.size();
      }
    }
    CHECK(has_positions == coded);
    CHECK(matrices > 4);
  }
}

}  // namespace slackline
