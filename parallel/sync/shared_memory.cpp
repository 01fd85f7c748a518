#include "parallel/sync/shared_memory.h"

#include <algorithm>
#include <optional>

namespace slackline {

namespace {

// Returns the elements that a share takes in memory.
std::size_t share_elements(const BucketShare& share) {
  constexpr std::size_t kLine = 32;  // of bf16 elements; f32 ones take two
  return (elements_of(share) + kLine - 1) / kLine * kLine;
}

void add_slot(std::map<std::size_t, std::size_t>& slots,
              const std::optional<std::size_t>& slot,
              std::size_t bytes) {
  if (slot) {
    slots[*slot] = std::max(slots[*slot], bytes);
  }
}

}  // namespace

std::size_t SharedMemory::slots() const {
  std::size_t sum = 0;
  for (const auto* slots : {&weight_slots, &gradient_slots}) {
    for (const auto& [slot, bytes] : *slots) {
      sum += bytes;
    }
  }
  return sum;
}

SharedMemory shared_memory(const SyncPlan& plan) {
  SharedMemory bytes;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const GradientBucket& bucket = plan.buckets[i];
    const BucketPlace& place = plan.places[i];
    const DType type = weight_type(bucket, plan);
    const std::size_t gradients = share_elements(place.gradients) * sizeof(float);
    std::size_t& weights = type == DType::bf16 ? bytes.bf16_weights : bytes.f32_weights;
    bytes.offsets.push_back({.weights = weights,
                             .masters = bytes.masters,
                             .gradients = bytes.gradients,
                             .bias_copies = bytes.bias_copies});
    weights += share_elements(place.weights) * size_of(type);
    if (bucket.trained && type == DType::bf16) {
      bytes.masters += share_elements(place.owned) * sizeof(float);
    }
    bytes.gradients += gradients;
    if (bucket.kind == GradientBucket::Kind::biases && plan.compute == DType::bf16) {
      bytes.bias_copies += bucket.count * size_of(DType::bf16);
    }
    if (has_both_ends(plan, i)) {
      bytes.input_gradient = gradients;
    }
    add_slot(bytes.weight_slots, place.weight_slot, bucket.count * size_of(type));
    add_slot(bytes.gradient_slots, place.gradient_slot, bucket.count * sizeof(float));
  }
  return bytes;
}

bool has_both_ends(const SyncPlan& plan, std::size_t bucket) {
  const auto makes = [&](ModelPart part) {
    return std::ranges::any_of(plan.made, [&](const auto& unit) { return unit.first == part; });
  };
  return plan.buckets[bucket].kind == GradientBucket::Kind::table && plan.buckets[bucket].trained &&
         makes(ModelPart::embedding) && makes(ModelPart::head);
}

}  // namespace slackline
