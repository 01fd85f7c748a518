#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/config/train_config.h"
#include "tools/plan/plan_job.h"

namespace slackline {

// What planning the config's run depends on. Token files that are not there count as empty.
[[nodiscard]] PlanJob plan_job(const TrainConfig& config);

// The same of a config's resolved text under other settings ("key=value"); nothing where the
// config's rules forbid them.
[[nodiscard]] std::optional<PlanJob> plan_job_with(const std::string& document,
                                                   const std::vector<std::string>& assignments);

}  // namespace slackline
