#include "parallel/step/sync_check.h"

#include <bit>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

void require_first_ranks(const Parameter& parameter, Communicator& group) {
  const HostTensor weight(parameter.weight);
  const std::span<const float> own = weight.tensor().span<float>();
  std::vector<float> first(own.begin(), own.end());
  group.broadcast(Tensor(std::span(first)), 0, {.what = "weights of the first rank"}).wait();
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(own[i]) != std::bit_cast<std::uint32_t>(first[i])) {
      throw Error(fmt::format(
          "debug.check_sync: {} differs between rank 0 and rank {} of axis {}: element {} of this "
          "rank's part: {} and {}",
          parameter.spec.name,
          group.rank(),
          group.axis(),
          i,
          first[i],
          own[i]));
    }
  }
}

}  // namespace

void check_sync(const Parameters& parameters, Groups& groups) {
  for (const Parameter& parameter : parameters.all()) {
    if (groups.data->size() > 1) {
      require_first_ranks(parameter, *groups.data);
    }
    if (groups.tensor->size() > 1 && parameter.spec.cut == TensorCut::none) {
      require_first_ranks(parameter, *groups.tensor);
    }
    if (groups.table_pair != nullptr && parameter.spec.role == ParameterRole::token_embedding) {
      require_first_ranks(parameter, *groups.table_pair);
    }
  }
}

}  // namespace slackline
