#include "parallel/step/round_reach.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace slackline {

RoundReach::RoundReach(OuterReach kind, MeshModel& model, const OuterMemory& memory)
    : model_(&model), memory_(&memory) {
  if (kind == OuterReach::measured) {
    round_.assign(memory.elements().size() + 1, 0.0);
    ended_ = round_;
  }
}

void RoundReach::note_update() {
  if (!is_measured()) {
    return;
  }
  const std::vector<double> squares = model_->optimizer().squared_directions(model_->stream());
  for (std::size_t i = 0; i < squares.size(); ++i) {
    round_[memory_->parameters()[i]] += model_->pieces()[i].counted ? squares[i] : 0.0;
  }
  round_.back() += model_->groups().world->rank() == 0 ? 1.0 : 0.0;
}

void RoundReach::end_round(std::span<const double> sum) {
  std::ranges::transform(sum, ended_.begin(), [](double x) { return static_cast<float>(x); });
  std::ranges::fill(round_, 0.0);
}

double RoundReach::length(double squares, double elements) const {
  const double count = ended_.empty() ? 0.0 : ended_.back() * elements;
  const double length = count > 0.0 ? std::sqrt(squares / count) : 0.0;
  return length > 0.0 && std::isfinite(length) ? length : 1.0;
}

double RoundReach::of(std::size_t parameter) const {
  return is_measured() ? length(ended_[parameter], memory_->elements()[parameter]) : 1.0;
}

double RoundReach::of_all() const {
  if (!is_measured()) {
    return 1.0;
  }
  return length(std::accumulate(ended_.begin(), std::prev(ended_.end()), 0.0),
                sum_of(memory_->elements()));
}

void RoundReach::gather_workers() {
  if (!is_measured()) {
    return;
  }
  const Groups& groups = model_->groups();
  of_workers_.assign(round_.size() * static_cast<std::size_t>(groups.num_workers()), 0.0);
  const std::size_t first = round_.size() * static_cast<std::size_t>(groups.worker_index());
  std::ranges::copy(round_, of_workers_.begin() + static_cast<std::ptrdiff_t>(first));
  groups.everyone->all_reduce(Tensor(std::span(of_workers_)), {.what = "directions of workers"})
      .wait();
}

void RoundReach::load(const std::vector<double>& ended, const std::vector<double>& of_workers) {
  const Groups& groups = model_->groups();
  const auto workers = static_cast<std::size_t>(groups.num_workers());
  if (!is_measured() || ended.size() != ended_.size() ||
      of_workers.size() != workers * round_.size()) {
    return;
  }
  ended_ = ended;
  of_workers_ = of_workers;
  std::ranges::fill(round_, 0.0);
  if (groups.world->rank() == 0) {
    const std::size_t first = round_.size() * static_cast<std::size_t>(groups.worker_index());
    std::copy_n(
        of_workers.begin() + static_cast<std::ptrdiff_t>(first), round_.size(), round_.begin());
  }
}

}  // namespace slackline
