#include "parallel/step/bucket_memory.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

// Elements behind `first` bytes.
Tensor row_of(const Buffer& buffer, DType type, std::size_t first, std::size_t count) {
  return buffer.view(type, {static_cast<std::int64_t>(count)}, first);
}

// A row of a bucket's elements as a parameter's tensor.
Tensor parameter_view(const Tensor& row, const GradientBucket& bucket, const Parameter& parameter) {
  const std::size_t first = parameter.first_element - bucket.first;
  const std::size_t count = parameter.shard.shape.num_elements();
  return part_of(row, {first, first + count}).reshaped(parameter.shard.shape);
}

// Where an element of the bucket stands in a share of it. REQUIRES: it is in the share.
std::size_t place_in(const BucketShare& share, std::size_t element) {
  std::size_t before = 0;
  for (const Slice& range : share) {
    if (range.begin <= element && element < range.end) {
      return before + element - range.begin;
    }
    before += range.count();
  }
  SL_CHECK(false, "an element of another rank's share");
  return 0;
}

bool is_bf16(const SyncPlan& plan, std::size_t bucket) {
  return weight_type(plan.buckets[bucket], plan) == DType::bf16;
}

std::vector<Buffer> make_slots(const std::string& name,
                               const std::map<std::size_t, std::size_t>& bytes,
                               Backing backing) {
  std::vector<Buffer> slots(bytes.empty() ? 0 : bytes.rbegin()->first + 1);
  for (const auto& [slot, size] : bytes) {
    slots[slot] = Buffer(name, size, backing);
  }
  return slots;
}

}  // namespace

BucketMemory::BucketMemory(Parameters& parameters, const SyncPlan& plan, Backing backing)
    : parameters_(&parameters), plan_(&plan), shared_(parameters.all().front().gradient.empty()) {
  if (!shared_) {
    return;
  }
  const SharedMemory total = shared_memory(plan);
  offsets_ = total.offsets;
  f32_weights_ = Buffer("weights", total.f32_weights, backing);
  bf16_weights_ = Buffer("bf16 weights", total.bf16_weights, backing);
  masters_ = Buffer("weights (own share)", total.masters, backing);
  bias_copies_ = Buffer("bf16 biases", total.bias_copies, backing);
  gradients_ = Buffer("gradients", total.gradients, backing);
  input_gradient_ = Buffer("input embedding gradient", total.input_gradient, backing);
  weight_slots_ = make_slots("weights of a layer", total.weight_slots, backing);
  gradient_slots_ = make_slots("gradients of a layer", total.gradient_slots, backing);
  // Gaps travel with the ranges they lie in.
  for (Buffer* buffer : {&f32_weights_, &bf16_weights_, &masters_, &gradients_, &input_gradient_}) {
    buffer->fill_zero();
  }
  for (std::vector<Buffer>* slots : {&weight_slots_, &gradient_slots_}) {
    for (Buffer& slot : *slots) {
      slot.fill_zero();
    }
  }
  set_views(parameters);
}

void BucketMemory::set_views(Parameters& parameters) {
  for (std::size_t i = 0; i < plan_->buckets.size(); ++i) {
    const GradientBucket& bucket = plan_->buckets[i];
    for (const Parameter* held : bucket.holds) {
      Parameter& parameter = parameters.at(held->spec.name);
      const Tensor view = parameter_view(weights(i), bucket, parameter);
      (is_bf16(*plan_, i) ? parameter.weight_bf16 : parameter.weight) = view;
      if (bucket.trained) {
        parameter.gradient = parameter_view(gradients(i), bucket, parameter);
      }
      if (bucket.kind == Kind::biases && plan_->compute == DType::bf16) {
        parameter.weight_bf16 =
            parameter_view(row_of(bias_copies_, DType::bf16, offsets_[i].bias_copies, bucket.count),
                           bucket,
                           parameter);
      }
    }
    if (has_both_ends(*plan_, i)) {
      const Parameter& table = *bucket.holds.front();
      const bool whole = !plan_->places[i].gradient_slot;
      parameters.set_input_gradient(
          whole
              ? parameter_view(row_of(input_gradient_, DType::f32, 0, bucket.count), bucket, table)
              : table.gradient,
          whole ? Parameters::Join::by_stage : Parameters::Join::by_others);
    }
  }
}

Tensor BucketMemory::weights(std::size_t bucket) const {
  const GradientBucket& held = plan_->buckets[bucket];
  if (!shared_) {
    return part_of(parameters_->all_weights(), {held.first, held.first + held.count});
  }
  if (const auto slot = plan_->places[bucket].weight_slot) {
    return row_of(weight_slots_[*slot], weight_type(held, *plan_), 0, held.count);
  }
  return weight_share(bucket);
}

Tensor BucketMemory::gradients(std::size_t bucket) const {
  const GradientBucket& held = plan_->buckets[bucket];
  if (!shared_) {
    return part_of(parameters_->all_gradients(), {held.first, held.first + held.count});
  }
  if (const auto slot = plan_->places[bucket].gradient_slot) {
    return row_of(gradient_slots_[*slot], DType::f32, 0, held.count);
  }
  return gradient_share(bucket);
}

Tensor BucketMemory::weight_share(std::size_t bucket) const {
  if (!shared_) {
    return weights(bucket);
  }
  const bool bf16 = is_bf16(*plan_, bucket);
  return row_of(bf16 ? bf16_weights_ : f32_weights_,
                bf16 ? DType::bf16 : DType::f32,
                offsets_[bucket].weights,
                slackline::elements_of(plan_->places[bucket].weights));
}

Tensor BucketMemory::gradient_share(std::size_t bucket) const {
  if (!shared_) {
    return gradients(bucket);
  }
  return row_of(gradients_,
                DType::f32,
                offsets_[bucket].gradients,
                slackline::elements_of(plan_->places[bucket].gradients));
}

Tensor BucketMemory::input_share(std::size_t bucket) const {
  if (!shared_ || !plan_->places[bucket].gradient_slot || !has_both_ends(*plan_, bucket)) {
    return {};
  }
  return row_of(
      input_gradient_, DType::f32, 0, slackline::elements_of(plan_->places[bucket].gradients));
}

std::vector<Tensor> BucketMemory::own_weights(std::size_t bucket) const {
  std::vector<Tensor> ranges;
  std::size_t before = 0;
  for (const Slice& range : plan_->places[bucket].weights) {
    ranges.push_back(part_of(weight_share(bucket), {before, before + range.count()}));
    before += range.count();
  }
  return ranges;
}

std::vector<BucketMemory::Held> BucketMemory::held(std::size_t bucket,
                                                   const Parameter& parameter) const {
  const std::size_t first = parameter.first_element - plan_->buckets[bucket].first;
  const std::size_t end = first + parameter.shard.shape.num_elements();
  std::vector<Held> ranges;
  std::size_t before = 0;
  for (const Slice& range : plan_->places[bucket].weights) {
    const Slice common{std::clamp(first, range.begin, range.end),
                       std::clamp(end, range.begin, range.end)};
    if (common.count() > 0) {
      const std::size_t begin = before + common.begin - range.begin;
      ranges.push_back({.range = {common.begin - first, common.end - first},
                        .weights = part_of(weight_share(bucket), {begin, begin + common.count()})});
    }
    before += range.count();
  }
  return ranges;
}

Tensor BucketMemory::elements_of(const SyncOp& op) const {
  const bool whole = op.memory == SyncOp::Memory::whole;
  if (op.state == SyncOp::State::weights) {
    return part_of(whole ? weights(op.bucket) : weight_share(op.bucket), op.range);
  }
  return part_of(whole ? gradients(op.bucket) : gradient_share(op.bucket), op.range);
}

OptimizedTensor BucketMemory::optimized(const OptimizerPiece& piece, WeightDecay decay) const {
  const Parameter& parameter = *piece.parameter;
  const std::size_t bucket = bucket_of(parameter, plan_->buckets);
  const BucketPlace& place = plan_->places[bucket];
  const std::size_t first =
      parameter.first_element - plan_->buckets[bucket].first + piece.range.begin;
  // A whole tensor keeps its shape.
  const bool whole = piece.range.count() == parameter.shard.shape.num_elements();
  const auto elements = [&](const Tensor& row, const BucketShare& share) {
    const std::size_t begin = shared_ ? place_in(share, first) : first;
    const Tensor view = part_of(row, {begin, begin + piece.range.count()});
    return whole ? view.reshaped(parameter.shard.shape) : view;
  };
  OptimizedTensor tensor{.name = parameter.spec.name, .decay = decay};
  if (parameter.spec.trained) {
    tensor.gradient = elements(gradient_share(bucket), place.gradients);
  }
  if (shared_ && is_bf16(*plan_, bucket) && parameter.spec.trained) {
    tensor.weight = elements(
        row_of(masters_, DType::f32, offsets_[bucket].masters, slackline::elements_of(place.owned)),
        place.owned);
    tensor.weight_copy = elements(weight_share(bucket), place.weights);
    return tensor;
  }
  tensor.weight = elements(weight_share(bucket), place.weights);
  if (!parameter.weight_bf16.empty() && !parameter.weight.empty()) {
    tensor.weight_copy =
        whole ? parameter.weight_bf16 : part_of(parameter.weight_bf16, piece.range);
  }
  return tensor;
}

void BucketMemory::place_own_weights(StreamView stream, std::size_t bucket) const {
  std::size_t before = 0;
  for (const Slice& range : plan_->places[bucket].weights) {
    cast(stream,
         part_of(weight_share(bucket), {before, before + range.count()}),
         part_of(weights(bucket), range));
    before += range.count();
  }
}

void BucketMemory::clear_gradients(StreamView stream, std::size_t bucket) const {
  fill_zero(stream, gradients(bucket));
}

void BucketMemory::add_own_gradients(StreamView stream,
                                     std::size_t bucket,
                                     const Tensor& share,
                                     Accumulate accumulate_share) const {
  std::size_t before = 0;
  for (const Slice& range : plan_->places[bucket].gradients) {
    const Tensor from = part_of(gradients(bucket), range);
    const Tensor to = part_of(share, {before, before + range.count()});
    accumulate_share == Accumulate::yes ? accumulate(stream, from, to) : cast(stream, from, to);
    before += range.count();
  }
}

void BucketMemory::join_gradients(StreamView stream, std::size_t bucket) const {
  const Tensor input = input_share(bucket);
  if (!input.empty()) {
    accumulate(stream, input, gradient_share(bucket));
  }
}

}  // namespace slackline
