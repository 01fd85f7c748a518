#include "parallel/step/sync_check.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

template <typename T>
void require_first_ranks(const Parameter& parameter,
                         const BucketMemory::Held& held,
                         Communicator& group) {
  const HostTensor weights(held.weights);
  const std::span<const T> own = weights.tensor().span<T>();
  std::vector<T> first(own.begin(), own.end());
  group.broadcast(Tensor(std::span(first)), 0, {.what = "weights of the first rank"}).wait();
  using Bits = std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint16_t>;
  const auto [mine, theirs] = std::ranges::mismatch(
      own, first, [](T a, T b) { return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b); });
  if (mine != own.end()) {
    throw Error(fmt::format(
        "debug.check_sync: {} differs between rank 0 and rank {} of axis {}: element {} of this "
        "rank's part: {} and {}",
        parameter.spec.name,
        group.rank(),
        group.axis(),
        held.range.begin + static_cast<std::size_t>(mine - own.begin()),
        static_cast<float>(*theirs),
        static_cast<float>(*mine)));
  }
}

// Returns over which data ranks a bucket's weights are shared out.
Extent extent_of(const GradientBucket& bucket, const DataStrategy& strategy) {
  return is_vectors(bucket.kind) ? Extent::none : strategy.parameters;
}

// The data ranks that hold the same weights; null where none does.
Communicator* same_holders(Extent extent, const Groups& groups) {
  if (extent == Extent::none) {
    return groups.data.get();
  }
  return extent == Extent::group ? groups.across_groups.get() : nullptr;
}

}  // namespace

void check_sync(const SyncPlan& plan,
                const BucketMemory& memory,
                const DataStrategy& strategy,
                Groups& groups) {
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const GradientBucket& bucket = plan.buckets[i];
    const Extent extent = extent_of(bucket, strategy);
    // Tensor ranks hold other elements of a bucket that is shared out with something else in it.
    const bool tensor_ranks_alike = extent == Extent::none || bucket.holds.size() == 1;
    std::vector<std::pair<const Parameter*, Communicator*>> checks;
    for (const Parameter* parameter : bucket.holds) {
      checks.emplace_back(parameter, same_holders(extent, groups));
      if (parameter->spec.cut == TensorCut::none && tensor_ranks_alike) {
        checks.emplace_back(parameter, groups.tensor.get());
      }
      if (parameter->spec.role == ParameterRole::token_embedding) {
        checks.emplace_back(parameter, groups.table_pair.get());
      }
    }
    for (const auto& [parameter, group] : checks) {
      if (group == nullptr || group->size() == 1) {
        continue;
      }
      for (const BucketMemory::Held& held : memory.held(i, *parameter)) {
        held.weights.dtype() == DType::f32
            ? require_first_ranks<float>(*parameter, held, *group)
            : require_first_ranks<BFloat16>(*parameter, held, *group);
      }
    }
  }
}

}  // namespace slackline
