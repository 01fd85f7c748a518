#include "tools/plan/memory_advice.h"

#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/tensor/memory_table.h"
#include "parallel/schedule/schedule_traits.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/memory_plan.h"

namespace slackline {

namespace {

struct Change {
  std::string assignments;  // as on the command line
  PlanJob job{};
};

// Lists the config itself first, then its changes, the smallest first.
std::vector<Change> changes_of_one_key(const PlanJob& job) {
  std::vector<Change> changes = {{"", job}};
  const auto add = [&](const char* assignment, const auto& change) {
    changes.push_back({assignment, job});
    change(changes.back().job.mesh);
  };
  const bool splits = schedule::traits_of(job.mesh.parallel.schedule).splits_backward;
  if (job.mesh.model.recompute == Recompute::none && !splits) {
    add(" --set model.recompute=block",
        [](MeshJob& changed) { changed.model.recompute = Recompute::block; });
  }
  if (job.mesh.parallel.data > 1 && job.mesh.parallel.data_strategy == DataStrategy::replicate) {
    add(" --set parallel.data_strategy=zero1",
        [](MeshJob& changed) { changed.parallel.data_strategy = DataStrategy::zero1; });
  }
  if (job.mesh.precision == DType::f32) {
    add(" --set precision=bf16", [](MeshJob& changed) { changed.precision = DType::bf16; });
  }
  return changes;
}

// Nothing where a codec of the config does not fit the job.
std::optional<std::size_t> bytes_of(const PlanJob& job, const MeshPlace& place, int num_threads) {
  try {
    return total_bytes(memory_plan(job, place, compression_plans(job), num_threads),
                       job.mesh.device);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string memory_advice(const PlanJob& job,
                          const MeshPlace& place,
                          int num_threads,
                          std::size_t limit) {
  for (const Change& change : changes_of_one_key(job)) {
    for (std::int64_t micro = job.mesh.micro_batch.B; micro > 0;
         micro = micro % 2 == 0 ? micro / 2 : 0) {
      const bool is_smaller = micro < job.mesh.micro_batch.B;
      if (change.assignments.empty() && !is_smaller) {
        continue;
      }
      Change tried = change;
      tried.job.mesh.num_micro_batches *= static_cast<int>(job.mesh.micro_batch.B / micro);
      tried.job.mesh.micro_batch.B = micro;
      if (is_smaller) {
        tried.assignments += fmt::format(" --set batch.micro={}", micro);
      }
      const std::optional<std::size_t> bytes = bytes_of(tried.job, place, num_threads);
      if (bytes && *bytes <= limit) {
        return fmt::format("hint: with{} it would hold {} of {}",
                           tried.assignments,
                           size_text(*bytes),
                           size_text(limit));
      }
    }
  }
  return fmt::format(
      "hint: no smaller micro-batch, recomputation or shared optimizer state brings it below {}; "
      "take more ranks (parallel.tensor, parallel.pipeline)",
      size_text(limit));
}

}  // namespace slackline
