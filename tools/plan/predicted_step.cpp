#include "tools/plan/predicted_step.h"

#include "parallel/plan/class_costs.h"
#include "parallel/predict/timeline/timeline.h"

namespace slackline {

schedule::Seconds predicted_step(const MeshLists& lists,
                                 const StepCosts& costs,
                                 const LinkSpeeds& links,
                                 const CompressionPlan& plan) {
  schedule::CostModel model = cost_model(lists, costs, links, plan);
  model.compressed = class_costs(lists, plan, costs);
  return schedule::make_timeline(lists.schedule(), model).step;
}

}  // namespace slackline
