#include "parallel/predict/bucket_times.h"

#include <algorithm>
#include <optional>

#include "core/tensor/arena.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/plan/step_costs.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/schedule/schedule_traits.h"

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

// The unit whose gradients are made when a bucket's sums at the step's end begin; none: they begin
// when the passes have ended.
std::optional<GradientBucket::Unit> sums_begin_with(const SyncPlan& plan, std::size_t bucket) {
  const auto first = std::ranges::find_if(plan.ops, [&](const SyncOp& op) {
    return op.bucket == bucket && op.begin == SyncOp::Begin::gradients_made;
  });
  return first == plan.ops.end() ? std::nullopt : first->unit;
}

}  // namespace

std::vector<PlacedBucket> placed_buckets(const MeshLists& lists, int pipeline_rank) {
  const MeshJob& job = lists.job();
  const StepCosts costs = assumed_costs(job.model, {});
  const auto seconds = [&](CostKind kind) { return costs.of_part(kind)->value; };
  const bool split = schedule::traits_of(job.parallel.schedule).splits_backward;
  const PassWork forward{.embedding = seconds(CostKind::embedding_forward),
                         .layer = seconds(CostKind::layer_forward),
                         .head = seconds(CostKind::head_forward)};
  const PassWork backward = split ? PassWork{.layer = seconds(CostKind::layer_backward_weight)}
                                  : PassWork{.embedding = seconds(CostKind::embedding_backward),
                                             .layer = seconds(CostKind::layer_backward),
                                             .head = seconds(CostKind::head_backward)};
  const std::vector<ChunkSlice> stages = split_layers(job.model, job.parallel);
  const RankSync& rank = lists.at(pipeline_rank);
  std::vector<PlacedBucket> placed;
  for (std::size_t i = 0; i < rank.plan.buckets.size(); ++i) {
    const GradientBucket& bucket = rank.plan.buckets[i];
    if (!bucket.trained || (bucket.kind == Kind::table && job.parallel.pipeline > 1)) {
      continue;
    }
    const schedule::TransferClass members = gradient_class(*bucket.holds.back(), bucket, rank.rank);
    PlacedBucket made{.stage = members.stage,
                      .bytes = bucket.count * sizeof(float),
                      .table = bucket.kind == Kind::table,
                      .tail = members.phase == schedule::Phase::tail};
    if (bucket.kind == Kind::layers) {
      int lowest = job.model.layers;
      for (const GradientBucket::Unit& unit : bucket.units) {
        lowest = std::min(lowest, position(unit, job.model));
      }
      const ChunkSlice& chunk = stages[static_cast<std::size_t>(members.stage)];
      made.gather_at = share(work_before(lowest, chunk, forward), work_of(chunk, forward));
      if (const std::optional<GradientBucket::Unit> unit = sums_begin_with(rank.plan, i)) {
        const int place = position(*unit, job.model);
        made.reduce_at = 1.0 - share(work_before(place, chunk, backward), work_of(chunk, backward));
      }
    }
    placed.push_back(made);
  }
  return placed;
}

std::size_t norm_elements(const MeshLists& lists, int pipeline_rank) {
  const RankSync& rank = lists.at(pipeline_rank);
  std::size_t elements = 0;
  for (const SyncOp& op : rank.plan.ops) {
    elements += op.group == SyncGroup::tensor ? rank.plan.buckets[op.bucket].count : 0;
  }
  return elements;
}

double updated_elements(const MeshLists& lists, int stage) {
  const MeshJob& job = lists.job();
  const RankSync& rank = lists.at(stage % job.parallel.pipeline);
  const ChunkSlice chunk = split_layers(job.model, job.parallel)[static_cast<std::size_t>(stage)];
  const bool two_copies = rank.rank.sync.table_on_two_stages;
  double sum = 0.0;
  for (std::size_t i = 0; i < rank.plan.buckets.size(); ++i) {
    const GradientBucket& bucket = rank.plan.buckets[i];
    if (!bucket.trained) {
      continue;
    }
    const auto shares = static_cast<double>(bucket.count) /
                        static_cast<double>(elements_of(rank.plan.places[i].owned));
    const bool is_copy = two_copies && bucket.kind == Kind::table && chunk.head;
    for (const Parameter* parameter : bucket.holds) {
      if (is_copy || chunk.has_part(parameter->spec.part, parameter->spec.layer)) {
        sum += static_cast<double>(Arena::aligned_bytes(DType::f32, parameter->shard.shape)) /
               sizeof(float) / shares;
      }
    }
  }
  return sum;
}

}  // namespace slackline
