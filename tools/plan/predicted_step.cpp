#include "tools/plan/predicted_step.h"

#include "parallel/predict/class_bytes.h"
#include "parallel/predict/class_costs.h"
#include "parallel/predict/timeline/timeline.h"

namespace slackline {

schedule::Seconds predicted_step(const MeshLists& lists,
                                 const StepCosts& costs,
                                 const LinkSpeeds& links,
                                 const CompressionPlan* plan) {
  schedule::CostModel model = cost_model(lists, costs, links);
  if (plan != nullptr) {
    for (const ClassBytes& row : class_bytes(lists, *plan)) {
      model.compressed[row.members] = class_cost(row, codec_seconds_or_assumed(row, costs));
    }
  }
  return schedule::make_timeline(lists.at(0).rank.executor.schedule, model).step;
}

}  // namespace slackline
