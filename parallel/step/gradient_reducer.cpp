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

}  // namespace

GradientReducer::GradientReducer(const Parameters& parameters,
                                 const ModelConfig& config,
                                 const ReducerPlan& plan,
                                 Groups& groups)
    : parameters_(&parameters), plan_(plan), groups_(&groups) {
  std::vector<GradientBucket> buckets =
      gradient_buckets(parameters.all(), config.tie_embeddings, plan.bucket_bytes);
  pieces_ = optimizer_pieces(parameters.all(), buckets, place());
  for (GradientBucket& bucket : buckets) {
    std::vector<GradientBucket::Unit> units = bucket.units;
    moving_.push_back({.bucket = std::move(bucket), .missing = std::move(units)});
  }
}

ReductionPlace GradientReducer::place() const {
  return {.strategy = plan_.strategy,
          .tensor_rank = groups_->tensor_rank(),
          .data_rank = groups_->data_rank(),
          .data_size = groups_->data->size(),
          .fused_table = groups_->table != nullptr && plan_.embedding_sync == EmbeddingSync::fused,
          .first_copy = groups_->pipeline_rank() == 0};
}

bool GradientReducer::is_fused(const GradientBucket& bucket) const {
  return bucket.kind == Kind::table && groups_->table != nullptr &&
         plan_.embedding_sync == EmbeddingSync::fused;
}

Communicator& GradientReducer::group_of(const GradientBucket& bucket) const {
  return is_fused(bucket) ? *groups_->table : *groups_->data;
}

BucketPlace GradientReducer::place_of(const GradientBucket& bucket) const {
  return {.chunks = &parameters_->slice().chunks,
          .pipeline_rank = groups_->pipeline_rank(),
          .pipeline_size = groups_->forward->size(),
          .group_size = group_of(bucket).size(),
          .group_rank = group_of(bucket).rank(),
          .order = is_fused(bucket) ? SumOrder::pairs : SumOrder::ranks,
          .strategy = plan_.strategy,
          .seed = key_.seed};
}

void GradientReducer::set_plan(const CompressionPlan& plan,
                               std::uint64_t seed,
                               const StepCosts* rehearsed) {
  key_.seed = seed;
  for (Moving& moving : moving_) {
    BucketPlace place = place_of(moving.bucket);
    place.rehearsed = rehearsed;
    const CodedBucket coded = coded_bucket(moving.bucket, plan, place);
    if (coded.sums.empty()) {
      moving.compressed.reset();
    } else if (!moving.compressed || moving.compressed->plan() != coded) {
      std::optional<CompressedBucket> before = std::move(moving.compressed);
      moving.compressed.emplace(coded);
      if (before) {
        moving.compressed->adopt(*before);
      }
    }
  }
}

void GradientReducer::begin_sample() {
  for (CompressedSum* sum : compressed_sums()) {
    sum->begin_sample();
  }
}

void GradientReducer::take_samples(StepSamples& samples) {
  for (Moving& moving : moving_) {
    if (!moving.compressed) {
      continue;
    }
    const BucketPlace place = place_of(moving.bucket);
    for (CompressedSum& sum : moving.compressed->sums()) {
      StepSamples::Gradients gradients{.sample = sum.take_sample(), .counts = sum.rank() == 0};
      for (const Parameter* matrix : sum.plan().matrices) {
        const bool counted = matrix->spec.cut != TensorCut::none || groups_->tensor_rank() == 0;
        gradients.classes.push_back(
            counted ? std::make_optional(class_of(*matrix, moving.bucket, place)) : std::nullopt);
      }
      gradients.sample->add_up(group_of(moving.bucket));
      samples.add(std::move(gradients));
    }
  }
}

void GradientReducer::keep_messages_of(const GradientBucket& bucket) {
  const BucketPlace place = place_of(bucket);
  if (bucket.kind == Kind::norms || place.group_size == 1) {
    return;
  }
  for (const Parameter* parameter : bucket.holds) {
    if (parameter->shard.shape.rank() == 2) {
      const schedule::TransferClass members = class_of(*parameter, bucket, place);
      keeping_->messages->keep(keeping_->stream, members.site, members.stage, parameter->gradient);
    }
  }
}

std::vector<CompressedSum*> GradientReducer::compressed_sums() {
  std::vector<CompressedSum*> sums;
  for (Moving& moving : moving_) {
    if (moving.compressed) {
      for (CompressedSum& sum : moving.compressed->sums()) {
        sums.push_back(&sum);
      }
    }
  }
  return sums;
}

void GradientReducer::gradients_made(ModelPart part, int layer) {
  const GradientBucket::Unit unit{part, layer};
  for (Moving& moving : moving_) {
    if (moving.bucket.kind != Kind::layers || moving.missing.empty()) {
      continue;
    }
    std::erase(moving.missing, unit);
    if (moving.missing.empty()) {
      reduce(moving);
    }
  }
}

void GradientReducer::reduce(Moving& moving) {
  const GradientBucket& bucket = moving.bucket;
  if (keeping_) {
    keep_messages_of(bucket);
  }
  if (moving.compressed) {
    moving.compressed->begin(*codec_stream_, group_of(bucket), key_);
    return;
  }
  const Tensor gradient = elements(parameters_->all_gradients(), bucket);
  const bool fused = is_fused(bucket);
  if (bucket.kind == Kind::table && groups_->table != nullptr && !fused) {
    groups_->table_pair->all_reduce(gradient, {.what = "gradient of the tied table, both stages"})
        .wait();
  }
  const SumOrder order = fused ? SumOrder::pairs : SumOrder::ranks;
  const TransferNote note{.what = fused ? "gradient of the tied table" : "gradients"};
  Communicator& group = group_of(bucket);
  moving.reduction = plan_.strategy == DataStrategy::zero1
                         ? group.reduce_scatter(gradient, note, order)
                         : group.all_reduce(gradient, note, order);
}

void GradientReducer::finish() {
  for (Moving& moving : moving_) {
    if (moving.bucket.kind == Kind::norms && plan_.sequence_parallel) {
      // Each tensor rank has seen its rows only.
      groups_->tensor
          ->all_reduce(elements(parameters_->all_gradients(), moving.bucket),
                       {.what = "gradients of norms"})
          .wait();
    }
    if (moving.bucket.kind != Kind::layers) {
      reduce(moving);
    }
  }
  for (Moving& moving : moving_) {
    SL_CHECK(moving.bucket.kind != Kind::layers || moving.missing.empty(), "gradients are missing");
    moving.compressed ? moving.compressed->finish() : moving.reduction.wait();
    moving.missing = moving.bucket.units;
  }
}

void GradientReducer::gather_weights() {
  if (plan_.strategy != DataStrategy::zero1) {
    return;
  }
  // First layers first: they are read first.
  for (auto moving = moving_.rbegin(); moving != moving_.rend(); ++moving) {
    moving->gather = group_of(moving->bucket)
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
