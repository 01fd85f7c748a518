#include "tools/plan/link_ways.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/joined_text.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/outer_round.h"
#include "parallel/sync/outer_plan.h"
#include "parallel/sync/rank_sync.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/memory_plan.h"
#include "tools/plan/strategy_ranking.h"

namespace slackline {

namespace {

const std::string kPlain = R"(compress={"policy": "none"})";
const std::string kCompressing = R"(compress={"policy": "critical_path"})";
const std::string kCodedRounds =
    R"(compress={"policy": "all", "outer": {"codec": "quantize", "bits": 4}})";
const std::string kTogether = R"(outer={"method": "none"})";
const std::string kApart = R"(outer={"method": "co2", "eager": true})";

// Tells ways apart: costs, links, and the memory of a device.
struct Scene {
  const StepCosts* costs = nullptr;
  const LinkSpeeds* links = nullptr;
  std::size_t memory_limit = 0;  // 0: not known
};

double all_of(const AxisBytes& bytes) {
  return static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
}

bool fits(const PlanJob& job, const PlanHistory& plans, const Scene& scene) {
  return scene.memory_limit == 0 || largest_memory(job, plans, *scene.links) <= scene.memory_limit;
}

LinkWay together(const std::string& name, PlanJob job, const Scene& scene) {
  job.mesh.parallel = with_decided_groups(job, *scene.links);
  const MeshLists lists(job.mesh);
  const PlanHistory plans = expected_plans(job, *scene.costs, *scene.links);
  const auto& plan = plans.back().plan;
  return {.name = name,
          .setting = name_of(job.mesh.parallel.data_strategy) +
                     (name == "compressing" ? ", policy critical_path" : ""),
          .step = predicted_timeline(lists, *scene.costs, *scene.links, plan).step,
          .bytes_across = all_of(step_traffic(lists, plan).all.across),
          .fits = fits(job, plans, scene)};
}

LinkWay sharding(const PlanJob& job, const Scene& scene) {
  const RankedStrategy first = rank_strategies(job, *scene.costs, *scene.links).rows.front();
  return {.name = "sharding",
          .setting = name_of(first.parallel.data_strategy),
          .step = first.step,
          .bytes_across = static_cast<double>(first.bytes_across),
          .fits = first.fits};
}

// A round that hides behind its steps costs none.
LinkWay apart(const PlanJob& job, const Scene& scene) {
  const MeshLists lists(job.mesh);
  const RoundKind kind = round_kind(job.outer, job.compress);
  const OuterRound round = outer_round(job.mesh, job.num_workers, kind, *scene.links, scene.costs);
  const schedule::Seconds step = predicted_timeline(lists, *scene.costs, *scene.links).step;
  const std::int64_t period =
      step.value > 0.0 ? chosen_period(round.seconds->value, step.value, 1) : 1;
  return {.name = "outer rounds",
          .setting = fmt::format(
              "co2 eager, period {}{}", period, kind.codec ? ", " + short_text(*kind.codec) : ""),
          .step = step,
          .bytes_across = static_cast<double>(round.bytes) / static_cast<double>(period),
          .fits = fits(job, expected_plans(job, *scene.costs, *scene.links), scene)};
}

}  // namespace

std::vector<LinkWay> ways_over_links(const PlanJob& job,
                                     const JobWith& job_with,
                                     const StepCosts& costs,
                                     const LinkSpeeds& links) {
  std::vector<LinkWay> ways;
  if (!links) {
    return ways;
  }
  const Scene scene{.costs = &costs, .links = &links, .memory_limit = device_memory_limit(links)};
  const auto variant = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> all = {
        "parallel.data_strategy=" + name_of(job.mesh.parallel.data_strategy),
        fmt::format("batch.micro={}", job.mesh.micro_batch.B)};
    all.insert(all.end(), settings.begin(), settings.end());
    return job_with(all);
  };
  std::optional<PlanJob> plain = variant({kTogether, kPlain});
  if (!plain || links->num_devices() < plain->mesh.parallel.num_ranks()) {
    return ways;
  }
  ParallelConfig wish = plain->mesh.parallel;
  wish.groups_apart = true;
  const ParallelConfig grouped =
      with_groups_of_nodes(wish, CollectivesWish::automatic, fewest_ranks_of_node(*links, *plain));
  if (grouped.num_groups() == 1) {
    return ways;
  }
  const std::string group = fmt::format("parallel.group={}", grouped.data_ranks_of_group());
  plain = variant({kTogether, kPlain, group});
  ways.push_back(together("plain", *plain, scene));
  if (const auto compressing = variant({kTogether, kCompressing, group})) {
    ways.push_back(together("compressing", *compressing, scene));
  }
  ways.push_back(sharding(*plain, scene));
  for (const std::string& codec : {kPlain, kCodedRounds}) {
    if (const auto rounds = variant({kApart, codec, group})) {
      ways.push_back(apart(*rounds, scene));
    }
  }
  std::ranges::stable_sort(
      ways, {}, [](const LinkWay& way) { return std::pair(!way.fits, way.step); });
  return ways;
}

std::string ways_text(const std::vector<LinkWay>& ways) {
  std::string text =
      "ways over the links between groups, the shortest step first:\n"
      "way                  step s   bytes between a step   setting\n";
  for (const LinkWay& way : ways) {
    text += fmt::format("{:<12} {:>14.6g} {:>22.0f}   {}{}\n",
                        way.name,
                        way.step.value,
                        way.bytes_across,
                        way.setting,
                        way.fits ? "" : "  does not fit");
  }
  return text;
}

std::string ways_json(const std::vector<LinkWay>& ways) {
  const std::string rows = joined_of(ways, ", ", [](const LinkWay& way) {
    return fmt::format(R"({{"way": "{}", "setting": "{}", "step_seconds": {}, "bytes_across": {}, )"
                       R"("fits": {}}})",
                       way.name,
                       way.setting,
                       way.step.value,
                       way.bytes_across,
                       way.fits);
  });
  return fmt::format("[{}]", rows);
}

}  // namespace slackline
