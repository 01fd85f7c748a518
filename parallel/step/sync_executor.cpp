#include "parallel/step/sync_executor.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;
using Begin = SyncOp::Begin;

// With one group of data ranks the group is all of them.
Communicator& group_of(const SyncOp& op, const Groups& groups) {
  switch (op.group) {
    case SyncGroup::tensor:
      return *groups.tensor;
    case SyncGroup::data:
      return *groups.data;
    case SyncGroup::group:
      return groups.group == nullptr ? *groups.data : *groups.group;
    case SyncGroup::across_groups:
      return *groups.across_groups;
    case SyncGroup::table:
      return *groups.table;
    case SyncGroup::table_pair:
      break;
  }
  return *groups.table_pair;
}

const char* purpose_of(const SyncOp& op) {
  if (op.state == SyncOp::State::weights) {
    return op.begin == Begin::before_use ? "weights of a layer" : "updated weights";
  }
  if (op.kind == SyncOp::Kind::all_gather) {
    return "sums of gradients";
  }
  if (op.group == SyncGroup::tensor) {
    return "gradients of norms";
  }
  return op.group == SyncGroup::table_pair ? "gradient of the tied table, both stages"
                                           : "gradients";
}

bool is_of_passes(const SyncOp& op) {
  return op.begin == Begin::before_use || op.begin == Begin::pass_made;
}

bool holds(const GradientBucket& bucket, const GradientBucket::Unit& unit) {
  // A tied table is read, and its gradients are made, at both ends of the model.
  const bool table = bucket.kind == Kind::table && unit.first != ModelPart::layer;
  return table || std::ranges::find(bucket.units, unit) != bucket.units.end();
}

std::size_t num_slots(const SyncPlan& plan) {
  std::size_t count = 0;
  for (const BucketPlace& place : plan.places) {
    count =
        std::max({count, place.weight_slot.value_or(0) + 1, place.gradient_slot.value_or(0) + 1});
  }
  return count;
}

}  // namespace

std::vector<SumChannel::Options> SyncExecutor::sum_channels(const SyncPlan& plan,
                                                            const BucketMemory& memory,
                                                            const RankPlan& rank,
                                                            const Groups& groups,
                                                            std::uint64_t seed) {
  std::vector<SumChannel::Options> sums;
  for (const SyncOp& op : plan.ops) {
    if (op.may_be_coded) {
      sums.push_back({.op = op,
                      .sync = &plan,
                      .rank = &rank,
                      .gradient = memory.elements_of(op),
                      .group = &group_of(op, groups),
                      .seed = seed});
    }
  }
  return sums;
}

std::vector<GatherChannel::Options> SyncExecutor::gather_channels(const SyncPlan& plan,
                                                                  const BucketMemory& memory,
                                                                  const Groups& groups,
                                                                  Backing backing) {
  const auto frames = std::make_shared<GatherFrames>(backing);
  std::vector<GatherChannel::Options> gathers;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    if (!plan.places[i].weight_slot) {
      continue;
    }
    GatherChannel::Options& gather = gathers.emplace_back();
    gather.plan = &plan;
    gather.bucket = i;
    gather.own = memory.own_weights(i);
    gather.whole = memory.weights(i);
    gather.slot = *plan.places[i].weight_slot;
    gather.frames = frames;
    for (const SyncOp& op : plan.ops) {
      if (op.bucket == i && op.begin == Begin::before_use) {
        gather.groups[op.group] = &group_of(op, groups);
      }
    }
  }
  return gathers;
}

SyncExecutor::SyncExecutor(const SyncPlan& plan,
                           const BucketMemory& memory,
                           Groups& groups,
                           Channels& channels)
    : plan_(&plan),
      memory_(&memory),
      groups_(&groups),
      channels_(&channels),
      sums_(plan.buckets.size()),
      gathers_(plan.buckets.size()),
      used_(&plan.used),
      weight_slot_is_taken_(num_slots(plan)),
      gradient_slots_(num_slots(plan)),
      channel_gathers_(plan.buckets.size()),
      passes_(plan.buckets.size()),
      reductions_(plan.buckets.size()),
      is_written_(plan.buckets.size()),
      input_is_written_(plan.buckets.size()) {
  std::size_t num_sums = 0;
  for (const SyncOp& op : plan.ops) {
    if (!is_of_passes(op) && op.begin != Begin::update_end) {
      step_ops_.push_back(&op);
    }
    channel_sums_.push_back(op.may_be_coded ? std::make_optional(num_sums++) : std::nullopt);
  }
  std::size_t num_gathers = 0;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    if (plan.places[i].weight_slot) {
      channel_gathers_[i] = num_gathers++;
    }
  }
}

std::optional<std::size_t> SyncExecutor::channel_of(const SyncOp& op) const {
  return channel_sums_[static_cast<std::size_t>(&op - plan_->ops.data())];
}

void SyncExecutor::Chain::begin(std::vector<const SyncOp*> ops, SyncExecutor& executor) {
  under_way_ = true;
  if (executor.may_follow_each_other(ops)) {
    for (const SyncOp* op : ops) {
      transfers_.push_back(executor.submit(*op, transfers_.empty() ? nullptr : &transfers_.back()));
    }
    return;
  }
  ops_ = std::move(ops);
  std::ranges::reverse(ops_);
  if (!ops_.empty()) {
    begin_next(executor);
  }
}

void SyncExecutor::Chain::begin_next(SyncExecutor& executor) {
  const SyncOp& op = *ops_.back();
  ops_.pop_back();
  channel_ = executor.channel_of(op);
  if (channel_) {
    executor.channels_->begin_sum(*channel_);
  } else {
    transfers_.push_back(executor.submit(op));
  }
}

void SyncExecutor::Chain::finish_begun(SyncExecutor& executor) {
  wait_for_all(transfers_);
  transfers_.clear();
  if (channel_) {
    executor.channels_->finish_sum(*channel_);
    channel_.reset();
  }
}

void SyncExecutor::Chain::advance(SyncExecutor& executor) {
  if (!ops_.empty()) {
    finish_begun(executor);
    begin_next(executor);
  }
}

void SyncExecutor::Chain::finish_but_last(SyncExecutor& executor) {
  for (std::size_t i = 0; i + 1 < transfers_.size(); ++i) {
    transfers_[i].wait();
  }
  while (!ops_.empty()) {
    advance(executor);
  }
}

void SyncExecutor::Chain::finish(SyncExecutor& executor) {
  finish_but_last(executor);
  finish_begun(executor);
  under_way_ = false;
}

bool SyncExecutor::may_follow_each_other(const std::vector<const SyncOp*>& ops) const {
  return ops.size() > 1 && std::ranges::all_of(ops, [&](const SyncOp* op) {
           return op->ranks > 1 && !channel_of(*op) &&
                  memory_->elements_of(*op).device() != Device::cuda;
         });
}

Transfer SyncExecutor::submit(const SyncOp& op, const Transfer* follows) {
  Communicator& group = group_of(op, *groups_);
  const Tensor elements = memory_->elements_of(op);
  const TransferNote note{.what = purpose_of(op)};
  const TransferWork work{.follows = follows};
  switch (op.kind) {
    case SyncOp::Kind::all_reduce:
      return group.all_reduce(elements, note, op.order, work);
    case SyncOp::Kind::reduce_scatter:
      return group.reduce_scatter(elements, note, op.order, work);
    case SyncOp::Kind::all_gather:
      break;
  }
  return group.all_gather(elements, note, work);
}

std::vector<const SyncOp*> SyncExecutor::ops_of(Begin begin,
                                                std::size_t bucket,
                                                const Unit& unit) const {
  std::vector<const SyncOp*> ops;
  for (const SyncOp& op : plan_->ops) {
    if (op.begin == begin && op.bucket == bucket && (!op.unit || op.unit == unit)) {
      ops.push_back(&op);
    }
  }
  return ops;
}

void SyncExecutor::begin_passes(Passes passes) {
  used_ = passes == Passes::train ? &plan_->used : &plan_->used_in_evaluation;
  num_used_ = 0;
  next_is_begun_ = false;
  is_written_.assign(is_written_.size(), false);
  input_is_written_.assign(input_is_written_.size(), false);
}

void SyncExecutor::before_norm(StreamView stream, ModelPart part, int layer) {
  for (std::size_t i = 0; i < plan_->buckets.size(); ++i) {
    if (plan_->buckets[i].kind == Kind::norms && holds(plan_->buckets[i], {part, layer})) {
      receive_weights(stream, i);
    }
  }
}

void SyncExecutor::before_use(StreamView stream, ModelPart part, int layer) {
  const Unit unit{part, layer};
  for (std::size_t i = 0; i < plan_->buckets.size(); ++i) {
    if (holds(plan_->buckets[i], unit)) {
      receive_weights(stream, i);
    }
  }
  const std::vector<std::size_t> buckets = slotted(unit, SyncOp::State::weights);
  if (buckets.empty()) {
    return;
  }
  expect_use(unit);
  if (!std::exchange(next_is_begun_, false)) {
    begin_use(stream, unit);
  }
  ++num_used_;
  for (const std::size_t bucket : buckets) {
    if (channels_->codes_gather(*channel_gathers_[bucket])) {
      channels_->finish_gather(*channel_gathers_[bucket]);
    } else {
      passes_[bucket].finish(*this);
    }
  }
  look_ahead(stream);
}

void SyncExecutor::expect_use(const Unit& unit) {
  if (num_used_ == used_->size() || (*used_)[num_used_] != unit) {
    throw Error(fmt::format("the sync plan expects weights of {} to be read next; got those of {}",
                            num_used_ == used_->size() ? "no part" : text_of((*used_)[num_used_]),
                            text_of(unit)));
  }
}

void SyncExecutor::after_use(StreamView stream, ModelPart part, int layer) {
  const std::vector<std::size_t> buckets = slotted({part, layer}, SyncOp::State::weights);
  for (const std::size_t bucket : buckets) {
    weight_slot_is_taken_[*plan_->places[bucket].weight_slot] = false;
  }
  if (!buckets.empty()) {
    look_ahead(stream);
  }
}

std::vector<std::size_t> SyncExecutor::slotted(const Unit& unit, SyncOp::State state) const {
  std::vector<std::size_t> buckets;
  for (std::size_t i = 0; i < plan_->buckets.size(); ++i) {
    const BucketPlace& place = plan_->places[i];
    const bool has_slot = state == SyncOp::State::weights ? place.weight_slot.has_value()
                                                          : place.gradient_slot.has_value();
    if (has_slot && holds(plan_->buckets[i], unit)) {
      buckets.push_back(i);
    }
  }
  return buckets;
}

void SyncExecutor::look_ahead(StreamView stream) {
  if (next_is_begun_ || num_used_ == used_->size()) {
    return;
  }
  const Unit& next = (*used_)[num_used_];
  const std::vector<std::size_t> buckets = slotted(next, SyncOp::State::weights);
  const bool are_free = std::ranges::all_of(buckets, [&](std::size_t bucket) {
    return !weight_slot_is_taken_[*plan_->places[bucket].weight_slot];
  });
  if (are_free) {
    begin_use(stream, next);
    next_is_begun_ = true;
  }
}

void SyncExecutor::begin_use(StreamView stream, const Unit& unit) {
  for (const std::size_t bucket : slotted(unit, SyncOp::State::weights)) {
    receive_weights(stream, bucket);
    weight_slot_is_taken_[*plan_->places[bucket].weight_slot] = true;
    if (channels_->codes_gather(*channel_gathers_[bucket])) {
      channels_->begin_gather(*channel_gathers_[bucket]);
      continue;
    }
    memory_->place_own_weights(stream, bucket);
    passes_[bucket].begin(ops_of(Begin::before_use, bucket, unit), *this);
  }
}

void SyncExecutor::before_gradients(StreamView stream, ModelPart part, int layer) {
  const Unit unit{part, layer};
  for (const std::size_t bucket : slotted(unit, SyncOp::State::gradients)) {
    const std::size_t slot = *plan_->places[bucket].gradient_slot;
    finish_reduction(stream, slot);
    gradient_slots_[slot] = SlotUse{.bucket = bucket, .unit = unit};
    // Products write the gradients of other parts.
    if (part == ModelPart::embedding) {
      memory_->clear_gradients(stream, bucket);
    }
  }
}

void SyncExecutor::gradients_made(StreamView stream, ModelPart part, int layer, bool last) {
  const Unit unit{part, layer};
  // The gradients before these have been added up in the group meanwhile, and go on between groups.
  for (const std::size_t bucket : made_before_) {
    reductions_[bucket].advance(*this);
  }
  made_before_ = slotted(unit, SyncOp::State::gradients);
  for (const std::size_t bucket : made_before_) {
    reductions_[bucket].begin(ops_of(Begin::pass_made, bucket, unit), *this);
  }
  if (!last) {
    return;
  }
  if (num_made_ == plan_->made.size() || plan_->made[num_made_] != unit) {
    throw Error(
        fmt::format("the sync plan expects gradients of {} next; got those of {}",
                    num_made_ == plan_->made.size() ? "no part" : text_of(plan_->made[num_made_]),
                    text_of(unit)));
  }
  ++num_made_;
  while (next_op_ < step_ops_.size() && step_ops_[next_op_]->unit == unit) {
    begin_next(stream);
  }
}

void SyncExecutor::finish_reduction(StreamView stream, std::size_t slot) {
  const std::optional<SlotUse> use = std::exchange(gradient_slots_[slot], std::nullopt);
  if (!use) {
    return;
  }
  reductions_[use->bucket].finish(*this);
  const Tensor input = memory_->input_share(use->bucket);
  const bool is_input = !input.empty() && use->unit.first == ModelPart::embedding;
  std::vector<bool>& written = is_input ? input_is_written_ : is_written_;
  memory_->add_own_gradients(stream,
                             use->bucket,
                             is_input ? input : memory_->gradient_share(use->bucket),
                             written[use->bucket] ? Accumulate::yes : Accumulate::no);
  written[use->bucket] = true;
}

void SyncExecutor::begin_next(StreamView stream) {
  const SyncOp& op = *step_ops_[next_op_++];
  const std::optional<std::size_t> slot = plan_->places[op.bucket].gradient_slot;
  if (slot && gradient_slots_[*slot] && gradient_slots_[*slot]->bucket == op.bucket) {
    finish_reduction(stream, *slot);
  }
  sums_[op.bucket].finish(*this);
  sums_[op.bucket].begin({&op}, *this);
}

void SyncExecutor::finish_sums(StreamView stream) {
  if (num_made_ != plan_->made.size()) {
    throw Error(fmt::format("the sync plan expects gradients of {} next; got the passes' end",
                            text_of(plan_->made[num_made_])));
  }
  for (std::size_t slot = 0; slot < gradient_slots_.size(); ++slot) {
    finish_reduction(stream, slot);
  }
  for (std::size_t bucket = 0; bucket < plan_->buckets.size(); ++bucket) {
    memory_->join_gradients(stream, bucket);
  }
  while (next_op_ < step_ops_.size() && step_ops_[next_op_]->begin == Begin::passes_end) {
    begin_next(stream);
  }
  if (next_op_ < step_ops_.size()) {
    throw Error("the passes have ended before this of the sync plan was due: " +
                text_of(*step_ops_[next_op_]));
  }
  for (Chain& sum : sums_) {
    sum.finish(*this);
  }
  num_made_ = 0;
  next_op_ = 0;
}

void SyncExecutor::begin_gathers() {
  for (const SyncOp& op : plan_->ops) {
    if (op.begin == Begin::update_end && !gathers_[op.bucket].is_under_way()) {
      gathers_[op.bucket].begin(ops_of(Begin::update_end, op.bucket, {}), *this);
    }
  }
  // The other stage waits for its half of a tied table before it sends this one anything.
  for (const SyncOp& op : plan_->ops) {
    if (op.begin == Begin::update_end && op.group == SyncGroup::table_pair) {
      gathers_[op.bucket].finish_but_last(*this);
    }
  }
}

void SyncExecutor::receive_weights(StreamView stream, std::size_t bucket) {
  if (!gathers_[bucket].is_under_way()) {
    return;
  }
  gathers_[bucket].finish(*this);
  for (const Parameter* parameter : plan_->buckets[bucket].holds) {
    if (!parameter->weight_bf16.empty() && !parameter->weight.empty()) {
      cast(stream, parameter->weight, parameter->weight_bf16);
    }
  }
}

void SyncExecutor::finish_gathers(StreamView stream) {
  for (std::size_t bucket = 0; bucket < gathers_.size(); ++bucket) {
    receive_weights(stream, bucket);
  }
}

}  // namespace slackline
