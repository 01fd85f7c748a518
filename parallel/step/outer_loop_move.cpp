// How an anchor moves by what has arrived.

#include <algorithm>
#include <cmath>

#include "parallel/step/outer_loop.h"

namespace slackline {

// docs/outer.md, "The penalty": how far the anchor has moved since the late difference was made, in
// lengths that a round can go.
std::vector<double> OuterLoop::penalties() const {
  const std::vector<double>& elements_of = memory_.elements();
  std::vector<double> divisors(elements_of.size(), 1.0);
  if (config_.penalty == OuterPenalty::constant) {
    divisors.assign(elements_of.size(), config_.penalty_value);
  }
  const auto steps = static_cast<double>(rounds_.last_end - rounds_.before);
  const double rates = steps * rate_(rounds_.before + 1);
  if (!config_.is_late() || rates == 0.0) {
    return divisors;
  }
  const auto gap = [&](double squares, double elements, double reach) {
    return elements == 0.0 ? 1.0 : 1.0 + std::sqrt(squares / elements) / (rates * reach);
  };
  if (config_.penalty == OuterPenalty::gap) {
    divisors.assign(elements_of.size(),
                    gap(sum_of(moved_squares_), sum_of(elements_of), reach_.of_all()));
  } else if (config_.penalty == OuterPenalty::gap_per_tensor) {
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      divisors[i] = gap(moved_squares_[i], elements_of[i], reach_.of(i));
    }
  }
  return divisors;
}

double OuterLoop::shrink_of(const OuterStep& move, const std::vector<double>& divisors) {
  if (config_.clip_kind != OuterClip::norm) {
    return 1.0;
  }
  OuterStep plain = move;  // which moves anchors by the momentum
  plain.nesterov = false;
  double sum = sum_of(memory_.squares_of_changes(plain, divisors));
  groups_->world->all_reduce(Tensor(std::span(&sum, 1)), {.what = "norm of the outer momentum"})
      .wait();
  // How ranks hold tensors shows in the last bits of a sum of doubles. Rounding to float drops
  // them.
  const double norm = static_cast<float>(std::sqrt(sum));
  return norm > config_.clip ? config_.clip / norm : 1.0;
}

void OuterLoop::note_clipped() {
  double count = memory_.count_of_momentum(static_cast<float>(config_.clip));
  sum_over_all(std::span(&count, 1), "clipped elements");
  const double copies = background_ != nullptr ? 1.0 : groups_->num_workers();
  clipped_ = count / copies / std::max(1.0, memory_.elements_of(0));
}

// Schedules may end with no rate, which would divide what the last round has learned by 0: the
// newest that there was counts.
double OuterLoop::rate_of(std::int64_t step) const {
  double rate = 0.0;
  for (; step > 0 && rate <= 0.0; --step) {
    rate = rate_(step);
  }
  return rate;
}

OuterStep OuterLoop::step_of(std::int64_t step) const {
  OuterStep move{.lr = config_.lr,
                 .momentum = config_.momentum,
                 .scale = 1.0 / groups_->num_workers(),
                 .nesterov = config_.nesterov};
  if (config_.clip_kind == OuterClip::element) {
    move.clip = config_.clip;
  }
  if (config_.method == OuterMethod::slowmo) {  // its momentum is of steps, in units of their rate
    const double rate = rate_of(step);
    move.scale = rate > 0.0 ? move.scale / rate : 0.0;
    move.lr *= rate;
  }
  return move;
}

// The step is of the momentum that there is, and of so much of this worker's difference as it takes
// for everybody's.
void OuterLoop::take_leads(std::int64_t step) {
  const std::vector<double> divisors = penalties();
  OuterStep ahead = step_of(step);
  ahead.scale *= groups_->num_workers() * config_.lead;
  ahead.shrink = shrink_of(ahead, divisors);
  memory_.take_leads(ahead, divisors);
}

void OuterLoop::move_anchor(std::int64_t step, OuterWrites writes, double mix) {
  has_arrived_ = false;
  OuterStep move = step_of(step);
  move.writes = writes;
  const std::vector<double> divisors = penalties();
  largest_penalty_ = *std::ranges::max_element(divisors);
  move.shrink = shrink_of(move, divisors);
  // Without Nesterov's an anchor moves along the momentum, which is there afterwards.
  if (config_.measures_moves() && config_.nesterov) {
    moved_squares_ = memory_.squares_of_changes(move, divisors);
  }
  memory_.move_anchor(travels_, move, divisors, mix);
  if (config_.measures_moves() && !config_.nesterov) {
    moved_squares_ = memory_.squares_of_momentum();
  }
  for (double& squares : moved_squares_) {
    squares *= config_.lr * config_.lr;
  }
  if (config_.clip_kind == OuterClip::element) {
    note_clipped();
  } else {
    clipped_ = move.shrink < 1.0 ? 1.0 : 0.0;
  }
}

}  // namespace slackline
