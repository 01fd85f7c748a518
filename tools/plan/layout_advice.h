#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/predict/step_cost_model.h"
#include "tools/plan/plan_job.h"

namespace slackline {

// One way to lay a config out over its ranks.
struct Layout {
  ParallelConfig parallel{};
  std::int64_t micro = 1;
  schedule::Seconds step{};      // predicted, under the config's compression policy
  std::size_t memory_bytes = 0;  // of the rank that needs most
  bool is_own = false;           // the config's
};

// The job of the same config with other settings ("key=value"); nothing where its rules forbid
// them.
using JobWith = std::function<std::optional<PlanJob>(const std::vector<std::string>& assignments)>;

struct LayoutAdvice {
  std::vector<Layout> layouts{};  // that fit, the shortest step first
  int num_compared = 0;           // all that the ranks allow
  int num_too_large = 0;          // of those tried for memory, in order of their steps
  std::size_t memory_limit = 0;   // of a device; 0: not known
};

// Compares tensor x pipeline x data, the micro-batch and the schedules 1f1b, interleaved (two
// chunks) and zb_h1 for as many ranks as the config has, everything else being the config's. Plain
// steps are timed for all of them, and for the `most` shortest again with what the policy
// compresses; policies that name classes of the config's own layout count as none, and sites that a
// layout lacks as not set. Costs that do not cover a layout leave it out, and so does
// network.collectives where it needs groups that the layout has not.
[[nodiscard]] LayoutAdvice advise_layouts(const PlanJob& job,
                                          const JobWith& job_with,
                                          const StepCosts& costs,
                                          const LinkSpeeds& links,
                                          int most = 8);

// A table of them.
[[nodiscard]] std::string advice_text(const LayoutAdvice& advice);

// A list of objects.
[[nodiscard]] std::string advice_json(const LayoutAdvice& advice);

}  // namespace slackline
