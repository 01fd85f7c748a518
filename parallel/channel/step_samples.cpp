#include "parallel/channel/step_samples.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace slackline {

using schedule::TransferClass;

StepSamples::StepSamples(const CompressionPlan& plan) {
  for (const CompressionPlan::Class& row : plan.classes) {
    if (row.codec) {
      classes_.push_back(row.members);
    }
  }
  sums_.resize(classes_.size());
}

void StepSamples::add(const TransferClass& members, const MessageSums& sums) {
  const auto found = std::find(classes_.begin(), classes_.end(), members);
  SL_CHECK(found != classes_.end(), "a sample of a class that is plain");
  sums_[static_cast<std::size_t>(found - classes_.begin())] += sums;
}

void StepSamples::add(Gradients gradients) {
  gradients_.push_back(std::move(gradients));
}

std::vector<MessageSums> StepSamples::finish() {
  for (Gradients& gradients : std::exchange(gradients_, {})) {
    for (std::size_t i = 0; i < gradients.classes.size(); ++i) {
      if (gradients.classes[i]) {
        const MessageSums sums = gradients.sample->sums(i);
        add(*gradients.classes[i], gradients.counts ? sums : MessageSums{});
      }
    }
  }
  return sums_;
}

}  // namespace slackline
