#include "tools/plan/plan_json.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/joined_text.h"
#include "core/json_string.h"
#include "parallel/plan/transfer_class_json.h"
#include "parallel/predict/timeline/chrome_trace.h"
#include "parallel/schedule/printer.h"
#include "parallel/schedule/schedule_traits.h"
#include "tools/plan/plan_text.h"

namespace slackline {

namespace {

using schedule::Seconds;

enum class KnownSeconds { no, yes };

std::string seconds_json(const std::optional<Seconds>& seconds,
                         KnownSeconds known = KnownSeconds::yes) {
  return seconds && known == KnownSeconds::yes ? fmt::format("{}", seconds->value) : "null";
}

std::string class_json(const StepPlan& plan, const PlannedClass& row, KnownSeconds known) {
  // Without links a transfer's seconds are known where they were measured.
  constexpr Seconds kLeastMeasured{1e-9};
  const bool has_raw = plan.links || (row.raw && kLeastMeasured < *row.raw);
  return fmt::format(R"({{{}, "raw_bytes": {}, )"
                     R"("sent_bytes": {}, "raw_seconds": {}, "encode_seconds": {}, )"
                     R"("decode_seconds": {}, "slack_seconds": {}, "codec": {}, "reason": {}}})",
                     transfer_class_members(row.members),
                     row.raw_bytes,
                     row.sent_bytes,
                     seconds_json(row.raw, has_raw ? known : KnownSeconds::no),
                     seconds_json(row.encode),
                     seconds_json(row.decode),
                     seconds_json(row.slack, known),
                     codec_setting_json(row.codec),
                     json_string(row.reason));
}

std::string classes_json(const StepPlan& plan,
                         const std::vector<PlannedClass>& classes,
                         KnownSeconds known,
                         std::string_view separator) {
  return joined_of(
      classes, separator, [&](const PlannedClass& row) { return class_json(plan, row, known); });
}

std::string bytes_json(const AxisBytes& bytes) {
  return fmt::format(R"({{"tensor": {}, "pipeline": {}, "data": {}, "embedding": {}}})",
                     bytes[kTensorAxis],
                     bytes[kPipelineAxis],
                     bytes[kDataAxis],
                     bytes[kEmbeddingAxis]);
}

std::string size_json(std::size_t bytes) {
  return bytes == Hierarchy::kNever ? "null" : fmt::format("{}", bytes);
}

// Says from which sizes on collectives go through groups, where communicators span several.
std::string collectives_json(const MeshJob& job) {
  const ParallelConfig& parallel = job.parallel;
  std::vector<std::string> rows;
  const auto add = [&](const char* axis, const Hierarchy& hierarchy) {
    rows.push_back(fmt::format(
        R"({{"axis": "{}", "ranks_in_group": {}, "sequential_from": {}, "overlapped_from": {}}})",
        axis,
        hierarchy.ranks_in_group,
        size_json(hierarchy.sequential_from),
        size_json(hierarchy.overlapped_from)));
  };
  if (parallel.num_groups() > 1) {
    add("data", parallel.data_hierarchy());
  }
  if (parallel.num_groups() > 1 && parallel.pipeline > 1 && job.model.tie_embeddings) {
    add("embedding", parallel.table_hierarchy());
  }
  return joined(rows, ", ");
}

std::string stages_json(const StepPlan& plan) {
  std::vector<std::string> stages;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const ChunkSlice& held = plan.stages[stage];
    stages.push_back(fmt::format(R"({{"stage": {}, "pipeline_rank": {}, "first_layer": {}, )"
                                 R"("layers": {}, "embedding": {}, "head": {}}})",
                                 stage,
                                 plan.schedule.rank_of(static_cast<int>(stage)),
                                 held.first_layer,
                                 held.num_layers(),
                                 held.embedding,
                                 held.head));
  }
  return joined(stages, ", ");
}

std::string ranks_json(const StepPlan& plan) {
  std::vector<std::string> ranks;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const PlannedRank& planned = plan.ranks[rank];
    const auto place = static_cast<std::size_t>(planned.place.pipeline);
    ranks.push_back(
        fmt::format(R"({{"rank": {}, "tensor": {}, "data": {}, "pipeline": {}, )"
                    R"("node": {}, "slots": {}, "memory_bytes": {}, "bytes_sent": {}}})",
                    rank,
                    planned.place.tensor,
                    planned.place.data,
                    planned.place.pipeline,
                    planned.node,
                    plan.slots[place],
                    planned.memory_bytes,
                    bytes_json(planned.sent)));
  }
  return joined(ranks, ", ");
}

// A list of ops per pipeline rank, as the printer writes them.
std::string schedule_json(const schedule::Schedule& schedule) {
  const auto name_of = [&](const schedule::Op& op) {
    return json_string(schedule::op_text(schedule, op));
  };
  const std::string rows =
      joined_of(schedule.ranks, ", ", [&](const std::vector<schedule::Op>& ops) {
        return fmt::format("[{}]", joined_of(ops, ", ", name_of));
      });
  return fmt::format(
      R"({{"kind": "{}", "ranks": [{}]}})", schedule::traits_of(schedule.kind).name, rows);
}

std::string totals_json(const StepPlan& plan) {
  const std::string items = joined_of(plan.memory.front(), ", ", [](const MemoryItem& item) {
    return fmt::format(R"({{"name": "{}", "bytes": {}}})", item.name, item.bytes);
  });
  return fmt::format(
      R"("parameters": {}, "trained_parameters": {}, "tokens_per_step": {}, "micro_batches": {}, )"
      R"("flops_per_token": {{"causal": {}, "full_attention": {}, "hardware": {}}}, )"
      R"("memory": [{}], "memory_bytes": {})",
      plan.parameters,
      plan.trained_parameters,
      plan.tokens_per_step,
      plan.job.mesh.num_micro_batches,
      plan.flops.causal,
      plan.flops.full_attention,
      plan.flops.hardware,
      items,
      total_bytes(plan.memory.front(), plan.job.mesh.device));
}

std::string round_json(const StepPlan& plan) {
  if (!plan.round) {
    return "null";
  }
  const auto or_null = [](const std::optional<std::int64_t>& steps) {
    return steps ? fmt::format("{}", *steps) : "null";
  };
  return fmt::format(
      R"({{"workers": {}, "period": {}, "codec": {}, "bytes": {}, "seconds": {}, "coding_seconds": {}, "shortest_period": {}}})",
      plan.round->workers,
      or_null(plan.job.outer.period),
      codec_setting_json(plan.job.compress.codec_of_rounds()),
      plan.round->bytes,
      seconds_json(plan.round->seconds),
      plan.round->coding.value,
      or_null(plan.shortest_period()));
}

}  // namespace

std::string plan_json(const StepPlan& plan, const PlanLists& lists) {
  return fmt::format(
      R"({{{}, "costs": {}, "links": {}, "step_seconds": {}, "bubble_share": {}, )"
      R"("bytes_sent": {}, "bytes_across": {}, "collectives": [{}], "outer": {}, "stages": [{}], "ranks": [{}], )"
      R"("classes": [{}], "layouts": {}, "strategies": {}, "ways": {}, "data": {}, "schedule": {}}})"
      "\n",
      totals_json(plan),
      json_string(plan.costs_from),
      json_string(plan.links_from),
      plan.timeline.step.value,
      schedule::bubble_share(plan.timeline),
      bytes_json(plan.step_bytes),
      bytes_json(plan.step_bytes_across),
      collectives_json(plan.job.mesh),
      round_json(plan),
      stages_json(plan),
      ranks_json(plan),
      classes_json(plan, plan.classes(), KnownSeconds::yes, ", "),
      lists.layouts,
      lists.strategies,
      lists.ways,
      lists.data,
      schedule_json(plan.schedule));
}

std::string plan_trace(const StepPlan& plan) {
  const std::vector<schedule::TraceBar> bars = trace_bars(plan.schedule, plan.timeline);
  std::vector<schedule::TraceBar> of_all;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    for (schedule::TraceBar bar : bars) {
      if (bar.rank == plan.ranks[rank].place.pipeline) {
        bar.rank = static_cast<int>(rank);
        of_all.push_back(bar);
      }
    }
  }
  return schedule::chrome_trace(of_all);
}

PlanFiles plan_files(const StepPlan& plan) {
  const KnownSeconds known = plan.has_measured_costs ? KnownSeconds::yes : KnownSeconds::no;
  const std::string entries = joined_of(plan.compression, ",\n ", [&](const PlannedClasses& row) {
    const std::string classes = classes_json(plan, row.classes, known, ",\n  ");
    return fmt::format(R"({{"from_step": {}, "predicted_step_seconds": {}, "classes": [{}{}{}]}})",
                       row.from_step,
                       seconds_json(row.step, known),
                       classes.empty() ? "" : "\n  ",
                       classes,
                       classes.empty() ? "" : "\n");
  });
  return {.json = fmt::format("[{}]\n", entries),
          .text = compression_text(plan) + "\n" + plan_text(plan)};
}

}  // namespace slackline
