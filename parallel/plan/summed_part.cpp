#include "parallel/plan/summed_part.h"

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

// Cuts elements of a parameter's local tensor into whole rows and what is left at both ends.
void add_parts(const SummedPart& all, std::vector<SummedPart>& parts) {
  const auto add = [&](const Slice& elements, const Shape& shape) {
    if (elements.count() > 0) {
      SummedPart& part = parts.emplace_back(all);
      part.elements = elements;
      part.shape = shape;
      part.first += elements.begin - all.elements.begin;
    }
  };
  const auto add_row = [&](const Slice& elements) {
    add(elements, {static_cast<std::int64_t>(elements.count())});
  };
  const Shape& local = all.parameter->shard.shape;
  const std::size_t columns = local.rank() == 2 ? static_cast<std::size_t>(local[1]) : 1;
  const Slice rows{(all.elements.begin + columns - 1) / columns, all.elements.end / columns};
  if (local.rank() != 2 || rows.begin >= rows.end) {
    add_row(all.elements);
    return;
  }
  const Slice whole{rows.begin * columns, rows.end * columns};
  add_row({all.elements.begin, whole.begin});
  add(whole, {static_cast<std::int64_t>(rows.count()), local[1]});
  add_row({whole.end, all.elements.end});
}

}  // namespace

std::string SummedPart::name() const {
  const std::string& whole = parameter->spec.name;
  return is_part ? fmt::format("{}/{}-{}", whole, elements.begin, elements.end) : whole;
}

std::vector<SummedPart> summed_parts(const SyncOp& op, const SyncPlan& plan, const RankPlan& rank) {
  const GradientBucket& bucket = plan.buckets[op.bucket];
  const Slice range = range_of(op, plan);
  const bool is_part = range.begin != 0 || range.end != bucket.count;
  std::vector<SummedPart> parts;
  for (const Parameter* parameter : bucket.holds) {
    const std::size_t first = parameter->first_element - bucket.first;
    const std::size_t end = first + parameter->shard.shape.num_elements();
    const Slice own{std::clamp(range.begin, first, end), std::clamp(range.end, first, end)};
    if (is_part && own.count() == 0) {
      continue;
    }
    const SummedPart part{
        .parameter = parameter,
        .elements = {own.begin - first, own.end - first},
        .shape = parameter->shard.shape,
        .first = own.begin - range.begin,
        .is_part = is_part,
        .counted = parameter->spec.cut != TensorCut::none || rank.sync.place.tensor == 0};
    is_part ? add_parts(part, parts) : parts.push_back(part);
  }
  return parts;
}

std::size_t elements_of(const std::vector<SummedPart>& parts) {
  std::size_t elements = 0;
  for (const SummedPart& part : parts) {
    elements += part.elements.count();
  }
  return elements;
}

}  // namespace slackline
