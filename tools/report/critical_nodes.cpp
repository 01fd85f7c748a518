#include "tools/report/critical_nodes.h"

#include "parallel/predict/timeline/slack.h"

namespace slackline::report {

std::vector<bool> critical_nodes(const schedule::Timeline& timeline) {
  constexpr double kNoise = 1e-9;  // of the step: sums along different paths round differently
  std::vector<bool> critical;
  critical.reserve(timeline.nodes.size());
  for (const schedule::Seconds slack : schedule::slack_of(timeline)) {
    critical.push_back(slack <= kNoise * timeline.step);
  }
  return critical;
}

}  // namespace slackline::report
