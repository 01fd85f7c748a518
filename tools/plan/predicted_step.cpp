#include "tools/plan/predicted_step.h"

#include "parallel/predict/timeline/timeline.h"

namespace slackline {

schedule::Seconds predicted_step(
    const MeshLists& lists,
    const StepCosts& costs,
    const LinkSpeeds& links,
    const std::map<schedule::TransferClass, schedule::ClassCost>& compressed) {
  schedule::CostModel model = cost_model(lists, costs, links);
  model.compressed = compressed;
  return schedule::make_timeline(lists.at(0).rank.executor.schedule, model).step;
}

}  // namespace slackline
