#include "parallel/plan/summed_bucket.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"

namespace slackline {

namespace {

// Elements of the bucket that an op works on.
Slice range_of(const SyncOp& op, const SyncPlan& plan) {
  if (op.memory == SyncOp::Memory::whole) {
    return op.range;
  }
  const BucketShare& share = plan.places[op.bucket].gradients;
  SL_CHECK_EQ(share.size(), 1U);  // a halved table has no such sum
  const std::size_t before = share.front().begin;
  return {before + op.range.begin, before + op.range.end};
}

Parameter part_of(const Parameter& parameter, const Slice& elements, const Shape& shape) {
  Parameter part;
  part.spec = parameter.spec;
  part.spec.name = fmt::format("{}/{}-{}", parameter.spec.name, elements.begin, elements.end);
  part.shard.shape = shape;
  part.first_element = parameter.first_element + elements.begin;
  return part;
}

void add_row(const Parameter& parameter, const Slice& elements, std::vector<Parameter>& parts) {
  if (elements.count() > 0) {
    parts.push_back(part_of(parameter, elements, {static_cast<std::int64_t>(elements.count())}));
  }
}

// Elements of the parameter's local tensor.
void add_parts(const Parameter& parameter, const Slice& elements, std::vector<Parameter>& parts) {
  const Shape& shape = parameter.shard.shape;
  const std::size_t columns = shape.rank() == 2 ? static_cast<std::size_t>(shape[1]) : 1;
  const Slice rows{(elements.begin + columns - 1) / columns, elements.end / columns};
  if (shape.rank() != 2 || rows.begin >= rows.end) {
    add_row(parameter, elements, parts);
    return;
  }
  const Slice whole{rows.begin * columns, rows.end * columns};
  add_row(parameter, {elements.begin, whole.begin}, parts);
  parts.push_back(part_of(parameter, whole, {static_cast<std::int64_t>(rows.count()), shape[1]}));
  add_row(parameter, {whole.end, elements.end}, parts);
}

}  // namespace

SummedBucket summed_bucket(const SyncOp& op, const SyncPlan& plan) {
  const GradientBucket& bucket = plan.buckets[op.bucket];
  const Slice range = range_of(op, plan);
  SummedBucket summed;
  summed.bucket = bucket;
  if (range.begin == 0 && range.end == bucket.count) {
    return summed;
  }
  for (const Parameter* parameter : bucket.holds) {
    const std::size_t first = parameter->first_element - bucket.first;
    const std::size_t end = first + parameter->shard.shape.num_elements();
    const Slice own{std::clamp(range.begin, first, end), std::clamp(range.end, first, end)};
    if (own.count() > 0) {
      add_parts(*parameter, {own.begin - first, own.end - first}, summed.parts);
    }
  }
  summed.bucket.first = bucket.first + range.begin;
  summed.bucket.count = range.count();
  summed.bucket.holds.clear();
  for (const Parameter& part : summed.parts) {
    summed.bucket.holds.push_back(&part);
  }
  return summed;
}

}  // namespace slackline
