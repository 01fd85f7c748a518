#include "tools/plan/memory_advice.h"

#include <vector>

#include <fmt/format.h>

#include "core/tensor/memory_table.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/memory_plan.h"

namespace slackline {

namespace {

struct Change {
  std::string assignments;  // as on the command line
  TrainConfig config{};
};

// Those of the config itself first, smallest change first.
std::vector<Change> changes_of_one_key(const TrainConfig& config) {
  std::vector<Change> changes = {{"", config}};
  const auto add = [&](const char* assignment, const auto& change) {
    changes.push_back({assignment, config});
    change(changes.back().config);
  };
  if (config.model.recompute == Recompute::none) {
    add(" --set model.recompute=block",
        [](TrainConfig& changed) { changed.model.recompute = Recompute::block; });
  }
  if (config.parallel.data > 1 && config.parallel.data_strategy == DataStrategy::replicate) {
    add(" --set parallel.data_strategy=zero1",
        [](TrainConfig& changed) { changed.parallel.data_strategy = DataStrategy::zero1; });
  }
  if (config.precision == DType::f32) {
    add(" --set precision=bf16", [](TrainConfig& changed) { changed.precision = DType::bf16; });
  }
  return changes;
}

}  // namespace

std::string memory_advice(const TrainConfig& config,
                          const MeshPlace& place,
                          int num_threads,
                          std::size_t limit) {
  for (const Change& change : changes_of_one_key(config)) {
    for (std::int64_t micro = config.batch.micro; micro > 0;
         micro = micro % 2 == 0 ? micro / 2 : 0) {
      const bool is_smaller = micro < config.batch.micro;
      if (change.assignments.empty() && !is_smaller) {
        continue;
      }
      Change tried = change;
      tried.config.batch.micro = micro;
      if (is_smaller) {
        tried.assignments += fmt::format(" --set batch.micro={}", micro);
      }
      const std::size_t bytes = total_bytes(
          memory_plan(tried.config, place, compression_plans(tried.config), num_threads),
          config.device);
      if (bytes <= limit) {
        return fmt::format("hint: with{} it would hold {} of {}",
                           tried.assignments,
                           size_text(bytes),
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
