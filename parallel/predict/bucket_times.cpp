#include "parallel/predict/bucket_times.h"

#include <algorithm>

#include "parallel/mesh/stage_split.h"
#include "parallel/plan/step_costs.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/sync/gradient_buckets.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

// Where in the model's order a unit stands: the embedding before layer 0, the head after the last.
int position(const GradientBucket::Unit& unit, const ModelConfig& model) {
  switch (unit.first) {
    case ModelPart::embedding:
      return -1;
    case ModelPart::head:
      return model.layers;
    case ModelPart::layer:
      break;
  }
  return unit.second;
}

bool stands_in(int place, const ChunkSlice& chunk) {
  return (place >= chunk.first_layer && place < chunk.last_layer) ||
         (place < 0 && chunk.embedding) || (place >= chunk.last_layer && chunk.head);
}

// Relative work of the parts in one pass.
struct PassWork {
  double embedding = 0.0;
  double layer = 0.0;
  double head = 0.0;
};

// What a pass does in the chunk's parts before `place` of the model's order.
double work_before(int place, const ChunkSlice& chunk, const PassWork& work) {
  const int layers = std::clamp(place, chunk.first_layer, chunk.last_layer) - chunk.first_layer;
  return (chunk.embedding && place >= 0 ? work.embedding : 0.0) + layers * work.layer;
}

double work_of(const ChunkSlice& chunk, const PassWork& work) {
  return work_before(chunk.last_layer, chunk, work) + (chunk.head ? work.head : 0.0);
}

double share(double part, double whole) {
  return whole > 0.0 ? part / whole : 0.0;
}

struct RankBuckets {
  std::vector<Parameter> parameters;
  std::vector<GradientBucket> buckets;  // point into them
};

RankBuckets buckets_of(const MeshJob& job, int pipeline_rank) {
  const RankPlan plan = make_rank_plan(job, {.pipeline = pipeline_rank});
  RankBuckets rank{.parameters = Parameters::describe(job.model, plan.slice), .buckets = {}};
  rank.buckets =
      gradient_buckets(rank.parameters, job.model.tie_embeddings, plan.reducer.bucket_bytes);
  return rank;
}

}  // namespace

std::vector<PlacedBucket> placed_buckets(const MeshJob& job, int pipeline_rank) {
  const StepCosts costs = assumed_costs(job.model, {});
  const auto seconds = [&](CostKind kind) { return costs.of_part(kind)->value; };
  const bool split = job.parallel.schedule == ScheduleName::zb_h1;
  const PassWork forward{.embedding = seconds(CostKind::embedding_forward),
                         .layer = seconds(CostKind::layer_forward),
                         .head = seconds(CostKind::head_forward)};
  const PassWork backward = split ? PassWork{.layer = seconds(CostKind::layer_backward_weight)}
                                  : PassWork{.embedding = seconds(CostKind::embedding_backward),
                                             .layer = seconds(CostKind::layer_backward),
                                             .head = seconds(CostKind::head_backward)};
  const std::vector<ChunkSlice> stages = split_layers(job.model, job.parallel);
  std::vector<PlacedBucket> placed;
  const RankBuckets rank = buckets_of(job, pipeline_rank);
  for (const GradientBucket& bucket : rank.buckets) {
    if (bucket.kind == Kind::table && job.parallel.pipeline > 1) {
      continue;
    }
    PlacedBucket made{.stage = pipeline_rank,
                      .bytes = bucket.count * sizeof(float),
                      .table = bucket.kind == Kind::table,
                      .tail = bucket.kind != Kind::layers};
    if (bucket.kind == Kind::layers) {
      int lowest = job.model.layers;
      for (const GradientBucket::Unit& unit : bucket.units) {
        lowest = std::min(lowest, position(unit, job.model));
      }
      const auto chunk = std::find_if(stages.begin(), stages.end(), [&](const ChunkSlice& slice) {
        return stands_in(lowest, slice);
      });
      made.stage = static_cast<int>(chunk - stages.begin());
      made.tail = lowest <= chunk->first_layer;
      made.gather_at = share(work_before(lowest, *chunk, forward), work_of(*chunk, forward));
      made.reduce_at =
          1.0 - share(work_before(lowest, *chunk, backward), work_of(*chunk, backward));
    }
    placed.push_back(made);
  }
  return placed;
}

std::size_t norm_bytes(const MeshJob& job, int pipeline_rank) {
  std::size_t bytes = 0;
  const RankBuckets rank = buckets_of(job, pipeline_rank);
  for (const GradientBucket& bucket : rank.buckets) {
    bytes += bucket.kind == Kind::norms ? bucket.count * sizeof(float) : 0;
  }
  return bytes;
}

}  // namespace slackline
