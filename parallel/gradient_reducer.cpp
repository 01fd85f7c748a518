#include "parallel/gradient_reducer.h"

#include <algorithm>

#include "core/arena.h"
#include "core/kernels/elementwise.h"

namespace slackline {

namespace {

// Elements a parameter takes in its buffer, the gap behind it included.
std::size_t padded_elements(const Parameter& parameter) {
  return Arena::aligned_bytes(DType::f32, parameter.shard.shape) / sizeof(float);
}

Tensor elements(const Tensor& all, std::size_t first, std::size_t count) {
  return {all.data<float>() + first, DType::f32, {static_cast<std::int64_t>(count)}};
}

Slice overlap(Slice a, Slice b) {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

GradientReducer::GradientReducer(const Parameters& parameters,
                                 const ModelConfig& config,
                                 const Options& options,
                                 Groups& groups)
    : parameters_(&parameters),
      options_(options),
      groups_(&groups),
      tied_(config.tie_embeddings),
      second_copy_(groups.table != nullptr && groups.pipeline_rank() > 0) {
  // From the last layer to the first, as backward makes them.
  const std::vector<Parameter>& all = parameters.all();
  for (auto parameter = all.rbegin(); parameter != all.rend(); ++parameter) {
    const ParameterRole role = parameter->spec.role;
    const bool table = tied_ && role == ParameterRole::token_embedding;
    if (!table && !is_norm(role)) {
      add(Bucket::Kind::layers, *parameter);
    }
  }
  for (auto parameter = all.rbegin(); parameter != all.rend(); ++parameter) {
    if (is_norm(parameter->spec.role)) {
      add(Bucket::Kind::norms, *parameter);
    }
  }
  if (tied_ && !all.empty() && all.front().spec.role == ParameterRole::token_embedding) {
    add(Bucket::Kind::table, all.front());
  }
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.units;
  }
  add_pieces();
}

// Joins the bucket begun last while that has room; layers of one unit stay together.
void GradientReducer::add(Bucket::Kind kind, const Parameter& parameter) {
  const Unit unit{parameter.spec.part, parameter.spec.layer};
  const bool fits = !buckets_.empty() && buckets_.back().kind == kind &&
                    (kind == Bucket::Kind::norms || buckets_.back().units.back() == unit ||
                     buckets_.back().count * sizeof(float) < options_.bucket_bytes);
  if (!fits) {
    buckets_.push_back({.kind = kind, .first = parameter.first_element});
  }
  Bucket& bucket = buckets_.back();
  bucket.first = parameter.first_element;
  bucket.count += padded_elements(parameter);
  bucket.holds.push_back(&parameter);
  if (bucket.units.empty() || bucket.units.back() != unit) {
    bucket.units.push_back(unit);
  }
}

bool GradientReducer::is_fused(const Bucket& bucket) const {
  return bucket.kind == Bucket::Kind::table && groups_->table != nullptr &&
         options_.embedding_sync == EmbeddingSync::fused;
}

Communicator& GradientReducer::group_of(const Bucket& bucket) const {
  return is_fused(bucket) ? *groups_->table : *groups_->data;
}

void GradientReducer::add_pieces() {
  // In the order of the parameters, whatever the buckets' order is.
  std::size_t index = 0;
  for (const Parameter& parameter : parameters_->all()) {
    for (const Bucket& bucket : buckets_) {
      if (std::find(bucket.holds.begin(), bucket.holds.end(), &parameter) != bucket.holds.end()) {
        add_piece(bucket, parameter, index++);
      }
    }
  }
}

void GradientReducer::add_piece(const Bucket& bucket,
                                const Parameter& parameter,
                                std::size_t index) {
  OptimizerPiece piece{.parameter = &parameter, .range = {0, parameter.weight.num_elements()}};
  const bool tensor_owner =
      parameter.spec.cut != TensorCut::none || parameters_->slice().tensor_rank == 0;
  const bool copy = second_copy_ && bucket.kind == Bucket::Kind::table;
  if (options_.strategy == DataStrategy::zero1) {
    const Communicator& group = group_of(bucket);
    const Slice own = slice_of(bucket.count, group.rank(), group.size());
    const std::size_t at = parameter.first_element - bucket.first;
    const Slice part = overlap(own, {at, at + piece.range.end});
    piece.range = {part.begin - std::min(part.begin, at), part.end - std::min(part.end, at)};
    if (part.count() == 0) {
      return;
    }
    piece.counted = tensor_owner && (!copy || is_fused(bucket));
    piece.saved = piece.counted;
  } else {
    piece.counted = tensor_owner && !copy && groups_->data_rank() == 0;
    // Every data rank has all of it; they share the writing.
    const auto writer = static_cast<int>(index % static_cast<std::size_t>(groups_->data->size()));
    piece.saved = tensor_owner && !copy && groups_->data_rank() == writer;
  }
  pieces_.push_back(piece);
}

void GradientReducer::gradients_made(ModelPart part, int layer) {
  const Unit unit{part, layer};
  for (Bucket& bucket : buckets_) {
    if (bucket.kind != Bucket::Kind::layers || bucket.missing.empty()) {
      continue;
    }
    std::erase(bucket.missing, unit);
    if (bucket.missing.empty()) {
      reduce(bucket);
    }
  }
}

void GradientReducer::reduce(Bucket& bucket) {
  const Tensor gradient = elements(parameters_->all_gradients(), bucket.first, bucket.count);
  if (bucket.kind == Bucket::Kind::table && groups_->table != nullptr && !is_fused(bucket)) {
    groups_->table_pair->all_reduce(gradient, {.what = "gradient of the tied table, both stages"})
        .wait();
  }
  const SumOrder order = is_fused(bucket) ? SumOrder::pairs : SumOrder::ranks;
  const TransferNote note{.what = is_fused(bucket) ? "gradient of the tied table" : "gradients"};
  Communicator& group = group_of(bucket);
  bucket.reduction = options_.strategy == DataStrategy::zero1
                         ? group.reduce_scatter(gradient, note, order)
                         : group.all_reduce(gradient, note, order);
}

void GradientReducer::finish() {
  for (Bucket& bucket : buckets_) {
    if (bucket.kind == Bucket::Kind::norms && options_.sequence_parallel) {
      // Each tensor rank has seen its rows only.
      groups_->tensor
          ->all_reduce(elements(parameters_->all_gradients(), bucket.first, bucket.count),
                       {.what = "gradients of norms"})
          .wait();
    }
    if (bucket.kind != Bucket::Kind::layers) {
      reduce(bucket);
    }
  }
  for (Bucket& bucket : buckets_) {
    SL_CHECK(bucket.kind != Bucket::Kind::layers || bucket.missing.empty(),
             "gradients are missing");
    bucket.reduction.wait();
    bucket.missing = bucket.units;
  }
}

void GradientReducer::gather_weights() {
  if (options_.strategy != DataStrategy::zero1) {
    return;
  }
  // First layers first: they are read first.
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
    bucket->gather = group_of(*bucket).all_gather(
        elements(parameters_->all_weights(), bucket->first, bucket->count),
        {.what = "updated weights"});
  }
}

void GradientReducer::before_use(StreamView stream, ModelPart part, int layer) {
  const Unit unit{part, layer};
  for (Bucket& bucket : buckets_) {
    const bool table = bucket.kind == Bucket::Kind::table && part != ModelPart::layer;
    if (table || std::find(bucket.units.begin(), bucket.units.end(), unit) != bucket.units.end()) {
      receive_weights(stream, bucket);
    }
  }
}

void GradientReducer::receive_weights(StreamView stream, Bucket& bucket) {
  if (bucket.gather.is_empty()) {
    return;
  }
  bucket.gather.wait();
  bucket.gather = {};
  for (const Parameter* parameter : bucket.holds) {
    if (!parameter->weight_bf16.empty()) {
      cast(stream, parameter->weight, parameter->weight_bf16);
    }
  }
}

void GradientReducer::finish_gather(StreamView stream) {
  for (Bucket& bucket : buckets_) {
    receive_weights(stream, bucket);
  }
}

}  // namespace slackline
