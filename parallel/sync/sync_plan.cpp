#include "parallel/sync/sync_plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "parallel/mesh/reported_axes.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;
using Unit = GradientBucket::Unit;
using schedule::Phase;
using schedule::Site;

// Whether it goes when the chunk's last gradients are made.
bool ends_with(const ChunkSlice& chunk, const GradientBucket& bucket) {
  return std::any_of(bucket.units.begin(), bucket.units.end(), [&](const Unit& unit) {
    const auto& [part, layer] = unit;
    switch (part) {
      case ModelPart::embedding:
        return chunk.embedding;
      case ModelPart::head:
        return chunk.head && chunk.num_layers() == 0;
      case ModelPart::layer:
        break;
    }
    return layer == chunk.first_layer && chunk.num_layers() > 0;
  });
}

}  // namespace

schedule::TransferClass gradient_class(const Parameter& parameter,
                                       const GradientBucket& bucket,
                                       const RankPlan& rank) {
  if (bucket.kind == Kind::table) {
    return {.site = Site::embedding, .stage = 0, .phase = Phase::tail};
  }
  const int place = rank.sync.place.pipeline;
  if (is_vectors(bucket.kind)) {  // of all chunks: counted with the first
    return {.site = Site::data_gradient, .stage = place, .phase = Phase::tail};
  }
  const auto chunk =
      static_cast<int>(chunk_of({parameter.spec.part, parameter.spec.layer}, rank.slice.chunks));
  const bool tail = ends_with(rank.slice.chunks[static_cast<std::size_t>(chunk)], bucket);
  return {.site = Site::data_gradient,
          .stage = chunk * rank.sync.pipeline_size + place,
          .phase = tail ? Phase::tail : Phase::step};
}

CollectiveCall plain_call(const SyncOp& op, const SyncPlan& plan) {
  using Called = TransferRecord::Kind;
  constexpr std::array<Called, 3> kCalls = {
      Called::all_reduce, Called::reduce_scatter, Called::all_gather};
  const DType type =
      op.state == SyncOp::State::weights ? weight_type(plan.buckets[op.bucket], plan) : DType::f32;
  return {.kind = kCalls[static_cast<std::size_t>(op.kind)],
          .elements = op.range.count(),
          .element_size = size_of(type),
          .order = op.order,
          .hierarchy = op.hierarchy};
}

DType weight_type(const GradientBucket& bucket, const SyncPlan& plan) {
  return is_vectors(bucket.kind) ? DType::f32 : plan.compute;
}

std::size_t times_of(const SyncOp& op, const SyncPlan& plan, int num_micro_batches) {
  switch (op.begin) {
    case SyncOp::Begin::before_use:
      return static_cast<std::size_t>(std::ranges::count(plan.used, *op.unit));
    case SyncOp::Begin::pass_made:
      return static_cast<std::size_t>(num_micro_batches);
    case SyncOp::Begin::gradients_made:
    case SyncOp::Begin::passes_end:
    case SyncOp::Begin::update_end:
      break;
  }
  return 1;
}

std::size_t elements_of(const BucketShare& share) {
  std::size_t count = 0;
  for (const Slice& range : share) {
    count += range.count();
  }
  return count;
}

bool is_vectors(GradientBucket::Kind kind) {
  return kind == Kind::norms || kind == Kind::biases;
}

std::size_t axis_of(SyncGroup group) {
  constexpr std::array<std::size_t, 6> kAxes = {
      kTensorAxis, kDataAxis, kDataAxis, kDataAxis, kEmbeddingAxis, kEmbeddingAxis};
  return kAxes[static_cast<std::size_t>(group)];
}

std::string text_of(const SyncOp& op) {
  constexpr std::array<const char*, 3> kKinds = {"all_reduce", "reduce_scatter", "all_gather"};
  constexpr std::array<const char*, 6> kGroups = {
      "tensor", "data", "group", "across_groups", "table", "table_pair"};
  std::string when;
  switch (op.begin) {
    case SyncOp::Begin::before_use:
      when = fmt::format("before each use of {}", text_of(*op.unit));
      break;
    case SyncOp::Begin::pass_made:
      when = fmt::format("whenever a pass has made {}", text_of(*op.unit));
      break;
    case SyncOp::Begin::gradients_made:
      when = fmt::format("when {} is made", text_of(*op.unit));
      break;
    case SyncOp::Begin::passes_end:
      when = "when the passes have ended";
      break;
    case SyncOp::Begin::update_end:
      when = "when weights are updated";
      break;
  }
  return fmt::format("{} of {} over {} {} ranks: bucket {}, {}",
                     kKinds[static_cast<std::size_t>(op.kind)],
                     op.state == SyncOp::State::gradients ? "gradients" : "weights",
                     op.ranks,
                     kGroups[static_cast<std::size_t>(op.group)],
                     op.bucket,
                     when);
}

}  // namespace slackline
