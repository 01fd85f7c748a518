#include "parallel/step/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

Tensor elements(const Tensor& all, const GradientBucket& bucket) {
  return {all.data<float>() + bucket.first,
          DType::f32,
          {static_cast<std::int64_t>(bucket.count)},
          all.device()};
}

bool is_fused(const GradientBucket& bucket, const ReducerPlan& plan, const Groups& groups) {
  return bucket.kind == Kind::table && groups.table != nullptr &&
         plan.embedding_sync == EmbeddingSync::fused;
}

Communicator& group_of(const GradientBucket& bucket,
                       const ReducerPlan& plan,
                       const Groups& groups) {
  return is_fused(bucket, plan, groups) ? *groups.table : *groups.data;
}

ReductionPlace place_of(const ReducerPlan& plan, const Groups& groups) {
  return {.strategy = plan.strategy,
          .tensor_rank = groups.tensor_rank(),
          .data_rank = groups.data_rank(),
          .data_size = groups.data->size(),
          .fused_table = groups.table != nullptr && plan.embedding_sync == EmbeddingSync::fused,
          .first_copy = groups.pipeline_rank() == 0};
}

}  // namespace

std::vector<SumChannel::Options> GradientReducer::sum_channels(const Parameters& parameters,
                                                               const ModelConfig& config,
                                                               const ReducerPlan& plan,
                                                               const Groups& groups,
                                                               std::uint64_t seed) {
  std::vector<SumChannel::Options> sums;
  for (const GradientBucket& bucket :
       gradient_buckets(parameters.all(), config.tie_embeddings, plan.bucket_bytes)) {
    Communicator& group = group_of(bucket, plan, groups);
    const bool fused = is_fused(bucket, plan, groups);
    sums.push_back({.bucket = bucket,
                    .place = {.chunks = &parameters.slice().chunks,
                              .pipeline_rank = groups.pipeline_rank(),
                              .pipeline_size = groups.forward->size(),
                              .group_size = group.size(),
                              .group_rank = group.rank(),
                              .order = fused ? SumOrder::pairs : SumOrder::ranks,
                              .strategy = plan.strategy,
                              .seed = seed},
                    .gradient = elements(parameters.all_gradients(), bucket),
                    .group = &group,
                    .note = {.what = fused ? "gradient of the tied table" : "gradients"},
                    .first_tensor_rank = groups.tensor_rank() == 0});
  }
  return sums;
}

GradientReducer::GradientReducer(const Parameters& parameters,
                                 const ModelConfig& config,
                                 const ReducerPlan& plan,
                                 Groups& groups,
                                 Channels& channels)
    : parameters_(&parameters), plan_(plan), groups_(&groups), channels_(&channels) {
  std::vector<GradientBucket> buckets =
      gradient_buckets(parameters.all(), config.tie_embeddings, plan.bucket_bytes);
  pieces_ = optimizer_pieces(parameters.all(), buckets, place_of(plan, groups));
  for (GradientBucket& bucket : buckets) {
    std::vector<GradientBucket::Unit> units = bucket.units;
    moving_.push_back({.bucket = std::move(bucket), .missing = std::move(units)});
  }
}

void GradientReducer::gradients_made(ModelPart part, int layer) {
  const GradientBucket::Unit unit{part, layer};
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    Moving& moving = moving_[i];
    if (moving.bucket.kind != Kind::layers || moving.missing.empty()) {
      continue;
    }
    std::erase(moving.missing, unit);
    if (moving.missing.empty()) {
      channels_->begin_sum(i);
    }
  }
}

void GradientReducer::reduce(std::size_t i) {
  const GradientBucket& bucket = moving_[i].bucket;
  const Tensor gradient = elements(parameters_->all_gradients(), bucket);
  if (bucket.kind == Kind::norms && plan_.sequence_parallel) {
    // Each tensor rank has seen its rows only.
    groups_->tensor->all_reduce(gradient, {.what = "gradients of norms"}).wait();
  }
  if (bucket.kind == Kind::table && groups_->table != nullptr &&
      !is_fused(bucket, plan_, *groups_)) {
    groups_->table_pair->all_reduce(gradient, {.what = "gradient of the tied table, both stages"})
        .wait();
  }
  channels_->begin_sum(i);
}

void GradientReducer::finish() {
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    if (moving_[i].bucket.kind != Kind::layers) {
      reduce(i);
    }
  }
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    Moving& moving = moving_[i];
    SL_CHECK(moving.bucket.kind != Kind::layers || moving.missing.empty(), "gradients are missing");
    channels_->finish_sum(i);
    moving.missing = moving.bucket.units;
  }
}

void GradientReducer::gather_weights() {
  if (plan_.strategy != DataStrategy::zero1) {
    return;
  }
  // First layers first: they are read first.
  for (auto moving = moving_.rbegin(); moving != moving_.rend(); ++moving) {
    moving->gather = group_of(moving->bucket, plan_, *groups_)
                         .all_gather(elements(parameters_->all_weights(), moving->bucket),
                                     {.what = "updated weights"});
  }
}

void GradientReducer::before_use(StreamView stream, ModelPart part, int layer) {
  const GradientBucket::Unit unit{part, layer};
  for (Moving& moving : moving_) {
    const std::vector<GradientBucket::Unit>& units = moving.bucket.units;
    const bool table = moving.bucket.kind == Kind::table && part != ModelPart::layer;
    if (table || std::find(units.begin(), units.end(), unit) != units.end()) {
      receive_weights(stream, moving);
    }
  }
}

void GradientReducer::receive_weights(StreamView stream, Moving& moving) {
  if (moving.gather.is_empty()) {
    return;
  }
  moving.gather.wait();
  moving.gather = {};
  for (const Parameter* parameter : moving.bucket.holds) {
    if (!parameter->weight_bf16.empty()) {
      cast(stream, parameter->weight, parameter->weight_bf16);
    }
  }
}

void GradientReducer::finish_gather(StreamView stream) {
  for (Moving& moving : moving_) {
    receive_weights(stream, moving);
  }
}

}  // namespace slackline
