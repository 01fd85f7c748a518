#include "parallel/step/sync_executor.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

Communicator& group_of(const SyncOp& op, const Groups& groups) {
  switch (op.group) {
    case SyncGroup::tensor:
      return *groups.tensor;
    case SyncGroup::data:
      return *groups.data;
    case SyncGroup::table:
      return *groups.table;
    case SyncGroup::table_pair:
      break;
  }
  return *groups.table_pair;
}

Tensor elements_of(const Tensor& all, const GradientBucket& bucket) {
  return {all.data<float>() + bucket.first,
          DType::f32,
          {static_cast<std::int64_t>(bucket.count)},
          all.device()};
}

}  // namespace

std::vector<SumChannel::Options> SyncExecutor::sum_channels(const Parameters& parameters,
                                                            const SyncPlan& plan,
                                                            const RankPlan& rank,
                                                            const Groups& groups,
                                                            std::uint64_t seed) {
  std::vector<SumChannel::Options> sums;
  for (const SyncOp& op : plan.ops) {
    if (op.is_last_sum()) {
      const GradientBucket& bucket = plan.buckets[op.bucket];
      sums.push_back({.op = op,
                      .bucket = bucket,
                      .rank = &rank,
                      .gradient = elements_of(parameters.all_gradients(), bucket),
                      .group = &group_of(op, groups),
                      .seed = seed});
    }
  }
  return sums;
}

SyncExecutor::SyncExecutor(const Parameters& parameters,
                           const SyncPlan& plan,
                           Groups& groups,
                           Channels& channels)
    : parameters_(&parameters),
      plan_(plan),
      groups_(&groups),
      channels_(&channels),
      gathers_(plan.buckets.size()) {}

void SyncExecutor::gradients_made(ModelPart part, int layer) {
  const GradientBucket::Unit unit{part, layer};
  if (num_made_ == plan_.made.size() || plan_.made[num_made_] != unit) {
    throw Error(
        fmt::format("the sync plan expects gradients of {} next; got those of {}",
                    num_made_ == plan_.made.size() ? "no part" : text_of(plan_.made[num_made_]),
                    text_of(unit)));
  }
  ++num_made_;
  while (next_op_ < plan_.ops.size() && plan_.ops[next_op_].unit == unit) {
    begin_next();
  }
}

void SyncExecutor::begin_next() {
  const SyncOp& op = plan_.ops[next_op_++];
  if (op.is_last_sum()) {
    channels_->begin_sum(num_sums_++);
    return;
  }
  if (op.kind == SyncOp::Kind::all_gather) {
    gather_sum(op);
    return;
  }
  // What the bucket's next op adds.
  const bool norms = op.group == SyncGroup::tensor;
  group_of(op, *groups_)
      .all_reduce(
          elements_of(parameters_->all_gradients(), plan_.buckets[op.bucket]),
          {.what = norms ? "gradients of norms" : "gradient of the tied table, both stages"})
      .wait();
}

void SyncExecutor::gather_sum(const SyncOp& op) {
  std::size_t sum = 0;
  for (const SyncOp& other : plan_.ops) {
    if (other.is_last_sum()) {
      if (other.bucket == op.bucket) {
        break;
      }
      ++sum;
    }
  }
  channels_->finish_sum(sum);
  group_of(op, *groups_)
      .all_gather(elements_of(parameters_->all_gradients(), plan_.buckets[op.bucket]),
                  {.what = "sums of gradients"})
      .wait();
}

void SyncExecutor::finish_sums() {
  if (num_made_ != plan_.made.size()) {
    throw Error(fmt::format("the sync plan expects gradients of {} next; got the passes' end",
                            text_of(plan_.made[num_made_])));
  }
  while (next_op_ < plan_.ops.size() && plan_.ops[next_op_].begin == SyncOp::Begin::passes_end) {
    begin_next();
  }
  if (next_op_ < plan_.ops.size() && plan_.ops[next_op_].begin != SyncOp::Begin::update_end) {
    throw Error("the passes have ended before this of the sync plan was due: " +
                text_of(plan_.ops[next_op_]));
  }
  for (std::size_t sum = 0; sum < num_sums_; ++sum) {
    channels_->finish_sum(sum);
  }
  num_made_ = 0;
  next_op_ = 0;
  num_sums_ = 0;
}

void SyncExecutor::begin_gathers() {
  for (const SyncOp& op : plan_.ops) {
    if (op.begin == SyncOp::Begin::update_end) {
      gathers_[op.bucket] =
          group_of(op, *groups_)
              .all_gather(elements_of(parameters_->all_weights(), plan_.buckets[op.bucket]),
                          {.what = "updated weights"});
    }
  }
}

void SyncExecutor::before_use(StreamView stream, ModelPart part, int layer) {
  const GradientBucket::Unit unit{part, layer};
  for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
    const GradientBucket& bucket = plan_.buckets[i];
    const std::vector<GradientBucket::Unit>& units = bucket.units;
    const bool table = bucket.kind == Kind::table && part != ModelPart::layer;
    if (table || std::find(units.begin(), units.end(), unit) != units.end()) {
      receive_weights(stream, i);
    }
  }
}

void SyncExecutor::receive_weights(StreamView stream, std::size_t bucket) {
  Transfer& gather = gathers_[bucket];
  if (gather.is_empty()) {
    return;
  }
  gather.wait();
  gather = {};
  for (const Parameter* parameter : plan_.buckets[bucket].holds) {
    if (!parameter->weight_bf16.empty()) {
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
