#pragma once

#include <string>

#include "tools/plan/step_plan.h"

namespace slackline {

// Lists in JSON that stand beside the plan: layouts (layout_advice.h), data strategies
// (strategy_ranking.h), ways over links (link_ways.h), data sets (data_table.h).
struct PlanLists {
  std::string layouts = "[]";
  std::string strategies = "[]";
  std::string ways = "[]";
  std::string data = "[]";
};

// One object, as `plan --json` prints it; docs/schedule.md has its fields.
[[nodiscard]] std::string plan_json(const StepPlan& plan, const PlanLists& lists = {});

// The predicted timeline as a Chrome trace with a row of tracks for every rank; replicas do the
// same at the same time.
[[nodiscard]] std::string plan_trace(const StepPlan& plan);

// What a run keeps of its plan.
struct PlanFiles {
  std::string json{};  // plan.json (docs/compression.md)
  std::string text{};  // plan.txt
};

// Seconds are null in the JSON unless costs were measured.
[[nodiscard]] PlanFiles plan_files(const StepPlan& plan);

}  // namespace slackline
