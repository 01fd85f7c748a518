#include "parallel/step/step_agreement.h"

#include <algorithm>
#include <cmath>

namespace slackline {

StepAgreement::StepAgreement(Communicator& world, std::vector<std::string> names)
    : world_(&world), names_(std::move(names)) {
  std::sort(names_.begin(), names_.end());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    index_[names_[i]] = i;
  }
}

StepFacts StepAgreement::agree(const StepFacts& own,
                               const std::vector<OptimizerPiece>& pieces,
                               const std::vector<double>& squared_norms) {
  // One number per tensor, then the loss and the stop requests.
  std::vector<double> numbers(names_.size() + 2, 0.0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].counted) {
      numbers[index_.at(pieces[i].parameter->spec.name)] += squared_norms[i];
    }
  }
  numbers[names_.size()] = own.loss;
  numbers[names_.size() + 1] = own.stop ? 1.0 : 0.0;
  world_->all_reduce(Tensor(std::span(numbers)), {.what = "agreement on the step"}).wait();

  double squares = 0.0;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    squares += numbers[i];
  }
  // How tensors are cut shows in the last bits of a sum of doubles. Rounding to float drops them.
  const auto norm = static_cast<float>(std::sqrt(squares));
  return {.loss = numbers[names_.size()],
          .gradient_norm = norm,
          .stop = numbers[names_.size() + 1] > 0.0};
}

std::string StepAgreement::first_of(const std::string& name) {
  // Rank r writes into place r, so the sum keeps them apart.
  std::vector<double> found(static_cast<std::size_t>(world_->size()), 0.0);
  if (!name.empty()) {
    found[static_cast<std::size_t>(world_->rank())] = 1.0 + static_cast<double>(index_.at(name));
  }
  world_->all_reduce(Tensor(std::span(found)), {.what = "agreement on what is not finite"}).wait();
  for (const double place : found) {
    if (place > 0.0) {
      return names_[static_cast<std::size_t>(place) - 1];
    }
  }
  return "";
}

}  // namespace slackline
