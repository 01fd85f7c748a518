// What a sum of a bucket's gradients adds up: of a rank's share whole rows, and what is left.

#include "parallel/plan/summed_part.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "parallel/choose/compression_policy.h"
#include "parallel/plan/bucket_compression.h"
#include "parallel/sync/rank_sync.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

MeshJob job_of(const std::string& letters, int data, int group) {
  MeshJob job{
      .model = {.layers = 2, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 96},
      .micro_batch = {.B = 2, .T = 16},
      .num_micro_batches = 2};
  job.parallel.data = data;
  job.parallel.group = group;
  job.parallel.data_strategy = *data_strategy_named(letters);
  return job;
}

// The ops that a codec may sit on.
std::vector<SyncOp> coded_ops(const SyncPlan& plan) {
  std::vector<SyncOp> ops;
  std::ranges::copy_if(
      plan.ops, std::back_inserter(ops), [](const SyncOp& op) { return op.may_be_coded; });
  return ops;
}

// How often each element of a bucket is in a part of one of these.
void count(const std::vector<SummedPart>& parts,
           const GradientBucket& bucket,
           std::vector<int>& times) {
  for (const SummedPart& part : parts) {
    const std::size_t first = part.parameter->first_element - bucket.first + part.elements.begin;
    for (std::size_t i = 0; i < part.shape.num_elements(); ++i) {
      ++times.at(first + i);
    }
  }
}

}  // namespace

TEST_CASE("a sum of all of a bucket adds up the plan's parameters") {
  for (const char* letters : {"NNN", "NNG", "GGG"}) {
    const RankSync rank(job_of(letters, 4, 0), {.data = 1});
    const std::vector<SyncOp> ops = coded_ops(rank.plan);
    REQUIRE_FALSE(ops.empty());
    for (const SyncOp& op : ops) {
      const GradientBucket& bucket = rank.plan.buckets[op.bucket];
      std::vector<const Parameter*> parameters;
      for (const SummedPart& part : summed_parts(op, rank.plan, rank.rank)) {
        CHECK_FALSE(part.is_part);
        CHECK(part.name() == part.parameter->spec.name);
        CHECK(part.shape == part.parameter->shard.shape);
        CHECK(part.elements == Slice{0, part.shape.num_elements()});
        CHECK(part.first == part.parameter->first_element - bucket.first);
        parameters.push_back(part.parameter);
      }
      CHECK(parameters == bucket.holds);
    }
  }
}

TEST_CASE("shares of all ranks of a group cover each parameter once, in whole rows and rests") {
  for (const char* letters : {"NNI", "III", "IGG"}) {
    INFO(letters);
    constexpr int kGroup = 3;
    const MeshJob job = job_of(letters, 2 * kGroup, kGroup);
    const RankSync first(job, {});
    const std::vector<SyncOp> ops = coded_ops(first.plan);
    REQUIRE_FALSE(ops.empty());
    std::size_t matrices = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const GradientBucket& bucket = first.plan.buckets[ops[i].bucket];
      std::vector<int> times(bucket.count);
      for (int data = 0; data < kGroup; ++data) {
        const RankSync rank(job, {.data = data});
        const SyncOp op = coded_ops(rank.plan).at(i);
        const std::vector<SummedPart> parts = summed_parts(op, rank.plan, rank.rank);
        std::set<std::size_t> begins;  // of the row in the bucket, as each part has it
        count(parts, bucket, times);
        for (const SummedPart& part : parts) {
          CHECK(part.is_part);
          CHECK(part.elements.count() == part.shape.num_elements());
          CHECK(part.first + part.elements.count() <= op.range.count());
          begins.insert(part.parameter->first_element - bucket.first + part.elements.begin -
                        part.first);
          matrices += part.shape.rank() == 2 ? 1U : 0U;
        }
        CHECK(begins.size() == 1);
      }
      for (const Parameter* parameter : bucket.holds) {
        for (std::size_t k = 0; k < parameter->shard.shape.num_elements(); ++k) {
          CHECK(times[parameter->first_element - bucket.first + k] == 1);
        }
      }
    }
    CHECK(matrices > ops.size());
  }
}

// Of 65 rows one rank has 32, which rank 16 makes no smaller, and one 33, which it does.
TEST_CASE("tensor ranks whose shards differ by a row compress the same matrices") {
  MeshJob job = job_of("NNN", 2, 0);
  job.model.vocab = 65;
  job.model.tie_embeddings = GENERATE(true, false);
  job.parallel.tensor = 2;
  const auto coded_names = [&](int rank, int low_rank) {
    const RankSync sync(job, {.tensor = rank});
    CompressionPlan plan;
    for (const schedule::TransferClass& members : compressible_classes(job)) {
      plan.classes.push_back({.members = members, .codec = CodecSetting{.rank = low_rank}});
    }
    std::vector<std::string> names;
    for (const SyncOp& op : coded_ops(sync.plan)) {
      const CodedBucket coded = coded_bucket(op, sync.plan, sync.rank, plan);
      for (const CodedSum& sum : coded.sums) {
        for (const SummedPart& matrix : sum.matrices) {
          names.push_back(matrix.name());
        }
      }
    }
    return names;
  };
  std::size_t coded = 0;
  for (int low_rank = 1; low_rank <= 32; ++low_rank) {
    INFO(low_rank);
    const std::vector<std::string> names = coded_names(0, low_rank);
    CHECK(coded_names(1, low_rank) == names);
    coded += names.size();
  }
  CHECK(coded > 0);
}

TEST_CASE("a bucket's sum that goes furthest is the one that may be coded") {
  const auto coded = [](const std::string& letters, int group) {
    const RankSync rank(job_of(letters, 4, group), {});
    std::vector<std::string> texts;
    for (const SyncOp& op : coded_ops(rank.plan)) {
      if (rank.plan.buckets[op.bucket].kind == GradientBucket::Kind::layers) {
        texts.push_back(text_of(op));
      }
    }
    return texts.front();
  };
  using Catch::Contains;
  CHECK_THAT(coded("NNN", 2), Contains("all_reduce of gradients over 4 data"));
  CHECK_THAT(coded("NNI", 2), Contains("all_reduce of gradients over 2 across_groups"));
  CHECK_THAT(
      coded("NIG", 2),
      Contains("reduce_scatter of gradients over 2 across_groups") && Contains("when layer"));
  CHECK_THAT(coded("IGG", 2), Contains("2 across_groups") && Contains("whenever a pass has made"));
  CHECK_THAT(coded("GGG", 2), Contains("4 data") && Contains("whenever a pass has made"));
  CHECK_THAT(coded("IIG", 4), Contains("4 group") && Contains("whenever a pass has made"));
}

}  // namespace slackline
