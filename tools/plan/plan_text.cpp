#include "tools/plan/plan_text.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "core/shown_text.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/timeline/timeline_printer.h"
#include "parallel/schedule/printer.h"
#include "parallel/schedule/schedule_traits.h"
#include "parallel/sync/rank_sync.h"
#include "tools/plan/decided_groups.h"

namespace slackline {

namespace {

constexpr std::size_t kMaxColumns = 160;  // of the schedule, and about of the timeline
constexpr int kMaxPlaces = 16;            // pipeline ranks whose lists and memory are shown
constexpr double kMilliseconds = 1e3;

// Lines that are too long end in dots.
std::string cut_lines(const std::string& text) {
  std::istringstream lines(text);
  std::string cut;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > kMaxColumns) {
      line.resize(kMaxColumns - 4);
      line.erase(line.find_last_of(' '));
      line += " ...";
    }
    cut += line + "\n";
  }
  return cut;
}

std::string totals_text(const StepPlan& plan) {
  const auto tokens = static_cast<double>(plan.tokens_per_step);
  std::string text =
      fmt::format("parameters            {:>18}\n", plan.parameters) +
      (plan.trained_parameters == plan.parameters
           ? ""
           : fmt::format("  that are trained    {:>18}\n", plan.trained_parameters)) +
      fmt::format("tokens a step         {:>18}\n", plan.tokens_per_step) +
      fmt::format("micro-batches a step  {:>18}\n\n", plan.job.mesh.num_micro_batches) +
      fmt::format("floating-point operations      a token       a step\n");
  for (const auto& [name, flops] :
       {std::pair{"model, causal (Megatron-LM)", plan.flops.causal},
        std::pair{"model, full attention (6N + 12LCT)", plan.flops.full_attention},
        std::pair{"hardware, with recomputation", plan.flops.hardware}}) {
    text += fmt::format("{:<36} {:>10.4g}   {:>10.4g}\n", name, flops, flops * tokens);
  }
  return text;
}

std::string layers_text(const ChunkSlice& stage) {
  std::string text = stage.embedding ? "embedding, " : "";
  text += stage.num_layers() == 1
              ? fmt::format("layer {}", stage.first_layer)
              : fmt::format("layers {} to {}", stage.first_layer, stage.last_layer - 1);
  return text + (stage.head ? ", head" : "");
}

// Says by what policy critical_path knows what codecs lose; nothing under other policies.
std::string errors_text(const StepPlan& plan) {
  if (plan.job.compress.policy != CompressionPolicy::critical_path) {
    return "";
  }
  const std::size_t measured = plan.costs.errors.tried().size();
  return measured == 0 ? "errors     none measured: as expected of normal values\n"
                       : fmt::format("errors     {} measured, of a codec and a class\n", measured);
}

// Which sums and gathers go through groups of data ranks; nothing with one group.
std::string groups_text(const StepPlan& plan) {
  const ParallelConfig& parallel = plan.job.mesh.parallel;
  return parallel.num_groups() == 1
             ? ""
             : collectives_text(parallel, plan.job.mesh.model.tie_embeddings);
}

std::string mesh_text(const StepPlan& plan) {
  const ParallelConfig& parallel = plan.job.mesh.parallel;
  const int nodes = plan.ranks.back().node + 1;
  const bool blocking = plan.schedule.transfers == schedule::Transfers::blocking;
  std::string text = fmt::format(
      "mesh       tensor {} x data {} x pipeline {}: {} rank{} on {} node{}\n"
      "schedule   {}, {} transfers\n"
      "costs      {}\n"
      "links      {}\n{}{}\n"
      "stage  pipeline rank  holds\n",
      parallel.tensor,
      parallel.data,
      parallel.pipeline,
      plan.ranks.size(),
      plan.ranks.size() == 1 ? "" : "s",
      nodes,
      nodes == 1 ? "" : "s",
      schedule::traits_of(plan.schedule.kind).name,
      blocking ? "blocking" : "asynchronous",
      shown_line(plan.costs_from),
      shown_line(plan.links_from),
      groups_text(plan),
      errors_text(plan));
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    text += fmt::format("{:>5}  {:>13}  {}\n",
                        stage,
                        plan.schedule.rank_of(static_cast<int>(stage)),
                        layers_text(plan.stages[stage]));
  }
  return text;
}

std::string bytes_row(const std::string& name, const AxisBytes& bytes) {
  return fmt::format("{:<16} {:>16} {:>16} {:>16} {:>16}\n",
                     name,
                     bytes[kTensorAxis],
                     bytes[kPipelineAxis],
                     bytes[kDataAxis],
                     bytes[kEmbeddingAxis]);
}

std::string bytes_text(const StepPlan& plan) {
  std::string text = fmt::format("{:<16} {:>16} {:>16} {:>16} {:>16}\n",
                                 "bytes sent",
                                 "tensor",
                                 "pipeline",
                                 "data",
                                 "embedding");
  for (const PlannedRank& rank : plan.ranks) {
    if (rank.place.tensor == 0 && rank.place.data == 0) {
      text += bytes_row(fmt::format("pipeline rank {}", rank.place.pipeline), rank.sent);
    }
  }
  text += bytes_row("all ranks", plan.step_bytes);
  return plan.job.mesh.parallel.num_groups() == 1
             ? text
             : text + bytes_row("between groups", plan.step_bytes_across);
}

// How an op goes, where it goes through groups.
std::string way_text(const SyncOp& op, const SyncPlan& sync) {
  switch (way_of(plain_call(op, sync), op.ranks)) {
    case Hierarchy::Way::direct:
      return "";
    case Hierarchy::Way::sequential:
      return fmt::format(", through groups of {}", op.hierarchy.ranks_in_group);
    case Hierarchy::Way::overlapped:
      return fmt::format(", through groups of {}, overlapped", op.hierarchy.ranks_in_group);
  }
  return "";
}

// What the first rank at each place of the pipeline adds and gathers, and the bytes that all data
// ranks there send for it.
std::string sync_text(const StepPlan& plan) {
  const MeshLists lists(plan.job.mesh);
  std::string text;
  for (int place = 0; place < std::min(plan.job.mesh.parallel.pipeline, kMaxPlaces); ++place) {
    const SyncPlan& sync = lists.at(place).plan;
    const std::vector<SentBytes> bytes =
        sync_bytes(lists, plan.plans.back().plan, {.pipeline = place});
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const SyncOp& op = sync.ops[i];
      text += fmt::format(
          "{:>13}  {:>16}  {}{}\n", place, bytes[i].sent, text_of(op), way_text(op, sync));
    }
  }
  return text.empty() ? "nothing is added or gathered over tensor or data ranks at a step's end\n"
                      : fmt::format("{:>13}  {:>16}  sums and gathers, as they begin\n{}",
                                    "pipeline rank",
                                    "bytes sent",
                                    text);
}

std::string memory_text(const StepPlan& plan) {
  const std::size_t places = std::min(plan.memory.size(), static_cast<std::size_t>(kMaxPlaces));
  const auto row_of = [&](const std::string& name, const auto& number_at) {
    std::string row = fmt::format("{:<32}", name);
    for (std::size_t place = 0; place < places; ++place) {
      row += fmt::format(" {:>14}", number_at(place));
    }
    return row + "\n";
  };
  std::string text =
      row_of("memory in bytes, pipeline rank", [](std::size_t place) { return place; }) +
      row_of("micro-batches in flight", [&](std::size_t place) { return plan.slots[place]; });
  for (std::size_t item = 0; item < plan.memory.front().size(); ++item) {
    const MemoryItem& first = plan.memory.front()[item];
    const bool apart = first.on_host && plan.job.mesh.device == Device::cuda;  // not in the total
    text += row_of(first.name + (apart ? ", host" : ""),
                   [&](std::size_t place) { return plan.memory[place].at(item).bytes; });
  }
  text += row_of("total", [&](std::size_t place) {
    return total_bytes(plan.memory[place], plan.job.mesh.device);
  });
  if (places < plan.memory.size()) {
    text +=
        fmt::format("and {} more pipeline ranks; --json has all\n", plan.memory.size() - places);
  }
  return text;
}

std::string milliseconds_text(const std::optional<schedule::Seconds>& seconds) {
  return seconds ? fmt::format("{:.3f}", kMilliseconds * seconds->value) : "-";
}

std::string classes_text(const StepPlan& plan) {
  const std::vector<PlannedClass>& classes = plan.classes();
  if (classes.empty()) {
    return "no transfers\n";
  }
  const bool compressed = std::any_of(classes.begin(), classes.end(), [](const PlannedClass& row) {
    return row.codec.has_value();
  });
  std::string text = fmt::format("{:<18}{:<6}{:<9}{:>16} {:>11} {:>11}{}\n",
                                 "site",
                                 "stage",
                                 "phase",
                                 "bytes a step",
                                 "ms each",
                                 "slack ms",
                                 compressed ? "        sent bytes  codec" : "");
  for (const PlannedClass& row : classes) {
    text += fmt::format("{:<18}{:<6}{:<9}{:>16} {:>11} {:>11}",
                        schedule::site_name(row.members.site),
                        row.members.stage,
                        schedule::phase_name(row.members.phase),
                        row.raw_bytes,
                        milliseconds_text(row.raw),
                        milliseconds_text(row.slack));
    text +=
        compressed
            ? fmt::format(" {:>17}  {}\n", row.sent_bytes, row.codec ? short_text(*row.codec) : "-")
            : "\n";
  }
  return text;
}

std::string step_text(const StepPlan& plan) {
  constexpr int kWidth = 120;
  return cut_lines(schedule_text(plan.schedule, schedule::ShownOps::compute)) + "\n" +
         timeline_text(plan.schedule, plan.timeline, kWidth) +
         fmt::format("predicted step {:.6g} s, bubble {:.2f} %, {:.6g} tokens/s\n",
                     plan.timeline.step.value,
                     100.0 * schedule::bubble_share(plan.timeline),
                     static_cast<double>(plan.tokens_per_step) / plan.timeline.step.value);
}

// Workers that train apart: mesh, bytes, memory and seconds above and below are of one of them.
std::string round_text(const StepPlan& plan) {
  if (!plan.round) {
    return "";
  }
  const OuterConfig& outer = plan.job.outer;
  const std::optional<CodecSetting> codec = plan.job.compress.codec_of_rounds();
  std::string text = fmt::format(
      "outer rounds of {} workers, each with a mesh as above\n"
      "period       {}\n"
      "codec        {}\n"
      "bytes sent   {} a round, by all ranks of all workers\n",
      plan.round->workers,
      outer.period ? fmt::format("{} steps", *outer.period) : "auto",
      codec ? short_text(*codec) : "none",
      plan.round->bytes);
  const std::optional<std::int64_t> shortest = plan.shortest_period();
  if (!shortest) {
    return text + "seconds      not known: no links of all workers' ranks\n\n";
  }
  const double seconds = plan.round->seconds->value;
  const double step = plan.timeline.step.value;
  const std::int64_t period = outer.period.value_or(*shortest);
  const auto steps = static_cast<double>(period);
  text += fmt::format("seconds      {:.4f} a round{}; it hides behind {} steps or more\n",
                      seconds,
                      codec ? fmt::format(", {:.4f} of it coding", plan.round->coding.value) : "",
                      *shortest);
  if (outer.is_late() || outer.has_fragments()) {  // it travels beside steps
    return text + fmt::format("slack        {:.4f} s at {} steps a round; {:.4f} s a step\n\n",
                              steps * step - seconds,
                              period,
                              std::max(step, seconds / steps));
  }
  return text + fmt::format("slack        none: the end of a round waits; {:.4f} s a step\n\n",
                            step + seconds / steps);
}

}  // namespace

std::string compression_text(const StepPlan& plan) {
  std::string text;
  for (const PlannedClasses& row : plan.compression) {
    const auto codecs =
        std::count_if(row.classes.begin(), row.classes.end(), [](const PlannedClass& members) {
          return members.codec.has_value();
        });
    text += fmt::format("from step {}: ", row.from_step);
    text += codecs == 0
                ? "no transfer is compressed\n"
                : fmt::format(
                      "{} of {} classes of transfers are compressed\n", codecs, row.classes.size());
  }
  for (const PlannedClass& row : plan.classes()) {
    text += fmt::format("  {}: {} ({})\n",
                        schedule::class_text(row.members),
                        row.codec ? short_text(*row.codec) : "plain",
                        shown_line(row.reason));
  }
  return text;
}

std::string plan_text(const StepPlan& plan) {
  return totals_text(plan) + "\n" + mesh_text(plan) + "\n" + step_text(plan) + "\n" +
         classes_text(plan) + "\n" + bytes_text(plan) + "\n" + sync_text(plan) + "\n" +
         round_text(plan) + memory_text(plan);
}

}  // namespace slackline
