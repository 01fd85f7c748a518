#include "tools/run/measure/compute_seconds.h"

#include <algorithm>

namespace slackline {

WaitStretches::WaitStretches(const std::vector<Wait>& transfers) {
  std::vector<std::pair<double, double>> all;
  for (const Wait& wait : transfers) {
    if (wait.record.wait_begin > 0.0 && wait.record.wait_end > wait.record.wait_begin) {
      all.emplace_back(wait.record.wait_begin, wait.record.wait_end);
    }
  }
  std::ranges::sort(all);
  for (const auto& [begin, end] : all) {
    if (!stretches_.empty() && begin <= stretches_.back().second) {
      stretches_.back().second = std::max(stretches_.back().second, end);
    } else {
      stretches_.emplace_back(begin, end);
    }
  }
}

double WaitStretches::not_waited(double begin, double end) const {
  double seconds = std::max(0.0, end - begin);
  auto stretch = std::ranges::upper_bound(
      stretches_, begin, {}, [](const std::pair<double, double>& one) { return one.second; });
  for (; stretch != stretches_.end() && stretch->first < end; ++stretch) {
    seconds -= std::min(end, stretch->second) - std::max(begin, stretch->first);
  }
  return seconds;
}

double compute_seconds(const MeshModel::StepTimes& times, const WaitStretches& waits) {
  double seconds = waits.not_waited(times.norm_begin, times.norm_end);
  for (const PipelineExecutor::OpTime& op : times.ops) {
    seconds += waits.not_waited(op.begin, op.end);
  }
  if (times.updated) {
    seconds += waits.not_waited(times.update_begin, times.update_end);
  }
  return seconds;
}

}  // namespace slackline
