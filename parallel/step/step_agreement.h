#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// What one rank knows of a step, and what all ranks know after they have agreed.
struct StepFacts {
  double loss = 0.0;           // sum over tokens; agreed: over all ranks' shares
  double gradient_norm = 0.0;  // agreed only
  bool stop = false;           // somebody was told to stop
};

// One exchange per step in which all ranks agree on loss, gradient norm and stop requests, so that
// they go on alike. Used by the rank's thread; every rank calls at the same point of the step.
class StepAgreement {
 public:
  // `names`: every parameter of the whole model.
  StepAgreement(Communicator& world, std::vector<std::string> names);

  // `squared_norms` belong to `pieces`, one each. The norm is a sum of double partials per logical
  // tensor, a tensor's shards in rank order, then tensors in byte order of their names;
  // `own` counts once, whichever ranks pass a loss.
  [[nodiscard]] StepFacts agree(const StepFacts& own,
                                const std::vector<OptimizerPiece>& pieces = {},
                                const std::vector<double>& squared_norms = {});

  // The first of the names that any rank gives, by rank; empty when none gives one.
  [[nodiscard]] std::string first_of(const std::string& name);

 private:
  Communicator* world_;
  std::vector<std::string> names_;            // in byte order
  std::map<std::string, std::size_t> index_;  // of a name
};

}  // namespace slackline
