#include "tools/run/measure/drift_watch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace slackline {

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool DriftWatch::add(double step_seconds) {
  if (num_settling_ < kSettling) {
    ++num_settling_;
    return false;
  }
  if (recent_.size() == kWindow) {
    recent_.erase(recent_.begin());
  }
  recent_.push_back(step_seconds);
  if (recent_.size() < kWindow) {
    return false;
  }
  if (usual_seconds_ == 0.0) {
    usual_seconds_ = median(recent_);
    return false;
  }
  return std::abs(median(recent_) / usual_seconds_ - 1.0) > kDrift;
}

void DriftWatch::restart() {
  num_settling_ = 0;
  recent_.clear();
  usual_seconds_ = 0.0;
}

}  // namespace slackline
