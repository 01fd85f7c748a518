#include "tools/plan/predicted_timeline.h"

#include "parallel/plan/class_costs.h"

namespace slackline {

schedule::Timeline predicted_timeline(const MeshLists& lists,
                                      const StepCosts& costs,
                                      const LinkSpeeds& links,
                                      const CompressionPlan& plan) {
  schedule::CostModel model = cost_model(lists, costs, links, plan);
  model.compressed = class_costs(lists, plan, costs);
  return schedule::make_timeline(lists.schedule(), model);
}

}  // namespace slackline
