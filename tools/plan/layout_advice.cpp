#include "tools/plan/layout_advice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/joined_text.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/choose/critical_path.h"
#include "parallel/schedule/schedule_traits.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/memory_plan.h"

namespace slackline {

namespace {

constexpr std::array<const char*, 3> kSchedules = {"1f1b", "interleaved", "zb_h1"};
constexpr int kMostChunks = 2;
constexpr int kMostMicro = 64;          // sequences
constexpr int kMostMicroBatches = 256;  // more change the bubble by nothing that counts

std::vector<int> divisors(int number) {
  std::vector<int> list;
  for (int divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) {
      list.push_back(divisor);
    }
  }
  return list;
}

struct Candidate {
  PlanJob job{};
  schedule::Seconds step{};
};

bool is_same_layout(const MeshJob& a, const MeshJob& b) {
  return a.parallel.tensor == b.parallel.tensor && a.parallel.pipeline == b.parallel.pipeline &&
         a.parallel.data == b.parallel.data && a.parallel.schedule == b.parallel.schedule &&
         a.parallel.chunks == b.parallel.chunks && a.micro_batch.B == b.micro_batch.B;
}

std::vector<PlanJob> all_layouts(const PlanJob& job, const JobWith& job_with) {
  std::vector<PlanJob> layouts{job};
  const int ranks = job.mesh.parallel.num_ranks();
  for (const int t : divisors(ranks)) {
    for (const int p : divisors(ranks / t)) {
      const int d = ranks / t / p;
      if (p > job.mesh.model.layers || job.mesh.global_batch() % d != 0) {
        continue;
      }
      for (std::int64_t micro = 1; micro <= kMostMicro; micro *= 2) {
        const std::int64_t share = job.mesh.global_batch() / d;
        if (share % micro != 0 || share / micro > kMostMicroBatches) {
          continue;
        }
        for (const char* schedule : kSchedules) {
          const bool interleaved = std::string_view(schedule) == "interleaved";
          if (p == 1 && std::string_view(schedule) != "1f1b") {
            continue;
          }
          std::vector<std::string> assignments = {
              fmt::format("parallel.tensor={}", t),
              fmt::format("parallel.pipeline={}", p),
              fmt::format("parallel.data={}", d),
              fmt::format("parallel.schedule={}", schedule),
              fmt::format("parallel.chunks={}", interleaved ? kMostChunks : 1),
              fmt::format("batch.micro={}", micro),
              "parallel.data_strategy=" + name_of(job.mesh.parallel.data_strategy)};
          if (!job.mesh.parallel.stage_layers.empty()) {
            assignments.emplace_back("parallel.stage_layers=[]");
          }
          const std::optional<PlanJob> layout = job_with(assignments);
          if (layout && !is_same_layout(layout->mesh, job.mesh)) {
            layouts.push_back(*layout);
          }
        }
      }
    }
  }
  return layouts;
}

// The shorter of its steps with plain transfers and with all of them compressed, by the first and
// by the last of critical_path's candidates: what a plan is likely to reach, without the search for
// it.
schedule::Seconds likely_step(const PlanJob& job, const StepCosts& costs, const LinkSpeeds& links) {
  const MeshLists lists(job.mesh);
  schedule::Seconds step = predicted_timeline(lists, costs, links).step;
  if (job.compress.policy == CompressionPolicy::none) {
    return step;
  }
  for (const bool first : {true, false}) {
    PlanJob compressed = job;
    if (job.compress.policy == CompressionPolicy::critical_path) {
      compressed.compress.policy = CompressionPolicy::all;
      for (const auto& [site, offered] : candidates_of(job.compress, job.mesh)) {
        compressed.compress.sites[schedule::site_name(site)] =
            first ? offered.front() : offered.back();
      }
    }
    const PlanHistory plans = compression_plans(compressed);
    step = std::min(step, predicted_timeline(lists, costs, links, plans.back().plan).step);
  }
  return step;
}

bool names_classes(const CompressConfig& compress) {
  return compress.policy == CompressionPolicy::list || compress.policy == CompressionPolicy::replay;
}

std::string name_of(const Layout& layout) {
  return schedule::traits_of(layout.parallel.schedule).name;
}

}  // namespace

LayoutAdvice advise_layouts(const PlanJob& job,
                            const JobWith& job_with,
                            const StepCosts& costs,
                            const LinkSpeeds& links,
                            int most) {
  LayoutAdvice advice{.memory_limit = device_memory_limit(links)};
  std::vector<Candidate> candidates;
  for (PlanJob& layout : all_layouts(job, job_with)) {
    if (names_classes(layout.compress)) {
      layout.compress = {};
      layout.mesh.parallel.codes_sums = false;
    }
    layout.mesh.parallel = with_decided_groups(layout, links);
    layout.compress = without_lacking_sites(layout.compress, layout.mesh);
    try {
      if (links) {
        require_groups(layout.mesh.parallel, layout.network.collectives);
      }
      const schedule::Seconds step = likely_step(layout, costs, links);
      candidates.push_back({.job = std::move(layout), .step = step});
    } catch (const ConfigError&) {
      continue;  // no plan of it is made, or costs of stages alone know no other layout
    }
  }
  advice.num_compared = static_cast<int>(candidates.size());
  const auto shorter = [](const auto& a, const auto& b) { return a.step < b.step; };
  std::stable_sort(candidates.begin(), candidates.end(), shorter);
  for (const Candidate& candidate : candidates) {
    const bool own = is_same_layout(candidate.job.mesh, job.mesh);
    if (static_cast<int>(advice.layouts.size()) >= most && !own) {
      continue;
    }
    const PlanHistory plans = expected_plans(candidate.job, costs, links);
    const std::size_t bytes = largest_memory(candidate.job, plans, links);
    if (advice.memory_limit > 0 && bytes > advice.memory_limit) {
      ++advice.num_too_large;
      continue;
    }
    const MeshLists lists(candidate.job.mesh);
    advice.layouts.push_back(
        {.parallel = candidate.job.mesh.parallel,
         .micro = candidate.job.mesh.micro_batch.B,
         .step = predicted_timeline(lists, costs, links, plans.back().plan).step,
         .memory_bytes = bytes,
         .is_own = own});
  }
  std::stable_sort(advice.layouts.begin(), advice.layouts.end(), shorter);
  return advice;
}

std::string advice_text(const LayoutAdvice& advice) {
  std::string text = fmt::format(
      "layouts of as many ranks, the shortest step first ({} compared{}):\n"
      "tensor  pipeline  data  micro  schedule       step s    memory bytes\n",
      advice.num_compared,
      advice.num_too_large == 0
          ? ""
          : fmt::format(", {} of the shortest need more than {} bytes a device",
                        advice.num_too_large,
                        advice.memory_limit));
  for (const Layout& layout : advice.layouts) {
    text += fmt::format("{:>6}  {:>8}  {:>4}  {:>5}  {:<11} {:>9.6g} {:>15}{}\n",
                        layout.parallel.tensor,
                        layout.parallel.pipeline,
                        layout.parallel.data,
                        layout.micro,
                        name_of(layout),
                        layout.step.value,
                        layout.memory_bytes,
                        layout.is_own ? "  <- the config's" : "");
  }
  return text;
}

std::string advice_json(const LayoutAdvice& advice) {
  const std::string rows = joined_of(advice.layouts, ", ", [](const Layout& layout) {
    return fmt::format(
        R"({{"tensor": {}, "pipeline": {}, "data": {}, "micro": {}, "schedule": "{}", )"
        R"("step_seconds": {}, "memory_bytes": {}, "is_own": {}}})",
        layout.parallel.tensor,
        layout.parallel.pipeline,
        layout.parallel.data,
        layout.micro,
        name_of(layout),
        layout.step.value,
        layout.memory_bytes,
        layout.is_own);
  });
  return fmt::format("[{}]", rows);
}

}  // namespace slackline
