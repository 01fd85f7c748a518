#pragma once

#include <string>
#include <vector>

#include "parallel/predict/step_cost_model.h"
#include "tools/plan/layout_advice.h"
#include "tools/plan/plan_job.h"

namespace slackline {

// A way for groups of data ranks to bear the links between them.
struct LinkWay {
  std::string name{};         // "plain", "compressing", "sharding", "outer rounds"
  std::string setting{};      // of the config, as people would write it
  schedule::Seconds step{};   // predicted; of rounds the mean of a period
  double bytes_across = 0.0;  // that all ranks send between groups, a step
  bool fits = true;           // a device's memory, as far as that is known
};

// Sets what the config's layout takes over these links beside each other, the shortest step first:
// plain; compressed as critical_path would; under the best data strategy; and in outer rounds of
// CO2, of the shortest period that hides what links carry of them, plain and with 4 bits. A way
// that the config's rules forbid is left out. Empty where links are not known, or data ranks make
// one group.
[[nodiscard]] std::vector<LinkWay> ways_over_links(const PlanJob& job,
                                                   const JobWith& job_with,
                                                   const StepCosts& costs,
                                                   const LinkSpeeds& links);

// Writes a table of them.
[[nodiscard]] std::string ways_text(const std::vector<LinkWay>& ways);

// Writes them as a list of objects.
[[nodiscard]] std::string ways_json(const std::vector<LinkWay>& ways);

}  // namespace slackline
