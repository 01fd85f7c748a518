#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "parallel/schedule/printer.h"
#include "tools/report/charts/step_bars.h"
#include "tools/report/charts/units.h"
#include "tools/report/compressed_transfers.h"

// The names of bars are those that tools/run/measure/trace_recorder.cpp gives: "forward s0 m1" for
// an op, "send: gradient s1 m0" for a message, "all_reduce: compressed gradients" for a collective.

namespace slackline::report {

namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::TraceBar;

constexpr std::string_view kStepTrack = "step";
constexpr std::string_view kStepName = "step ";

// A name that ends in " s<virtual stage> m<micro-batch>".
struct PlacedName {
  std::string what{};
  int stage = 0;
  int micro_batch = 0;
};

std::optional<int> number_of(std::string_view digits) {
  int value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value);
  return parsed.ec == std::errc{} && parsed.ptr == end ? std::optional<int>(value) : std::nullopt;
}

std::optional<PlacedName> placed_name(std::string_view name) {
  const std::size_t m = name.rfind(" m");
  const std::size_t s = m == std::string_view::npos ? m : name.rfind(" s", m);
  if (s == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<int> stage = number_of(name.substr(s + 2, m - s - 2));
  const std::optional<int> micro_batch = number_of(name.substr(m + 2));
  if (!stage || !micro_batch) {
    return std::nullopt;
  }
  return PlacedName{std::string(name.substr(0, s)), *stage, *micro_batch};
}

struct Look {
  LaneKind lane{};
  BarKind kind{};
  std::optional<OpKind> op{};  // of ops and sends
};

std::optional<Look> compute_look(std::string_view what) {
  if (what == "forward") {
    return Look{LaneKind::compute, BarKind::forward, OpKind::forward};
  }
  if (what == "backward") {
    return Look{LaneKind::compute, BarKind::backward, OpKind::backward};
  }
  if (what == "backward_input") {
    return Look{LaneKind::compute, BarKind::backward, OpKind::backward_input};
  }
  if (what == "backward_weight") {
    return Look{LaneKind::compute, BarKind::weight, OpKind::backward_weight};
  }
  return Look{LaneKind::compute, BarKind::update};
}

std::optional<Look> look_of(std::string_view track, std::string_view what) {
  if (track == "compute") {
    return compute_look(what);
  }
  if (track == "pipeline" && what == "send: activations") {
    return Look{LaneKind::activations, BarKind::activations, OpKind::send_forward};
  }
  if (track == "pipeline" && what == "send: gradient") {
    return Look{LaneKind::gradients, BarKind::gradients, OpKind::send_backward};
  }
  if (track == "data" || track == "embedding") {
    return Look{LaneKind::data, BarKind::data};
  }
  return track == "waiting" ? std::optional<Look>({LaneKind::waiting, BarKind::waiting})
                            : std::nullopt;
}

// When the last traced step was, over all ranks.
struct Window {
  std::int64_t step = 0;
  double begin = std::numeric_limits<double>::infinity();
  double end = -std::numeric_limits<double>::infinity();

  void include(const TraceBar& bar) {
    begin = std::min(begin, bar.start.value);
    end = std::max(end, (bar.start + bar.duration).value);
  }
};

Window last_step(const std::vector<TraceBar>& trace) {
  std::map<int, Window> steps;
  Window whole;
  for (const TraceBar& bar : trace) {
    whole.include(bar);
    const std::string_view name = bar.name;
    if (bar.track == kStepTrack && name.substr(0, kStepName.size()) == kStepName) {
      if (const std::optional<int> step = number_of(name.substr(kStepName.size()))) {
        steps[*step].include(bar);
        steps[*step].step = *step;
      }
    }
  }
  return steps.empty() ? whole : steps.rbegin()->second;
}

using OpKey = std::tuple<OpKind, int, int>;

std::set<OpKey> critical_ops(const StepPlan& plan) {
  const std::vector<bool> critical = critical_nodes(plan.timeline);
  std::set<OpKey> ops;
  for (std::size_t id = 0; id < critical.size(); ++id) {
    const schedule::TimelineNode& node = plan.timeline.nodes[id];
    const bool computes = node.kind == schedule::NodeKind::op && is_compute(node.op.kind);
    if (critical[id] && (computes || node.kind == schedule::NodeKind::transfer)) {
      ops.insert({node.op.kind, node.op.chunk, node.op.micro_batch});
    }
  }
  return ops;
}

bool is_valid(const schedule::Schedule& schedule, const PlacedName& place) {
  return place.stage >= 0 && place.stage < schedule.num_stages() && place.micro_batch >= 0;
}

// Channels name their transfers so.
bool carries_frames(const std::string& name) {
  return name.find(": compressed gradients") != std::string::npos ||
         name.find(": coded weights") != std::string::npos;
}

}  // namespace

StepBars measured_bars(const StepPlan& plan,
                       Prediction prediction,
                       const std::vector<TraceBar>& trace) {
  const Window window = last_step(trace);
  const CompressedTransfers compressed(plan, std::max<std::int64_t>(window.step, 1));
  const std::set<OpKey> critical =
      prediction == Prediction::known ? critical_ops(plan) : std::set<OpKey>{};
  StepBars step{.seconds = window.end - window.begin, .step = window.step};
  for (const TraceBar& bar : trace) {
    const double start = std::max(bar.start.value, window.begin);
    const double end = std::min((bar.start + bar.duration).value, window.end);
    const std::optional<PlacedName> place = placed_name(bar.name);
    const std::optional<Look> look = look_of(bar.track, place ? place->what : bar.name);
    if (!look || end < start || bar.start.value >= window.end) {
      continue;
    }
    RankBar row{.rank = bar.rank,
                .lane = look->lane,
                .kind = look->kind,
                .start = start - window.begin,
                .end = end - window.begin,
                .title = fmt::format("{}: {}", bar.name, seconds_text(bar.duration.value)),
                .compressed = bar.track != "waiting" && carries_frames(bar.name)};
    if (look->op && place && is_valid(plan.schedule, *place)) {
      const Op op{*look->op, place->stage, place->micro_batch};
      row.label = op_text(plan.schedule, op);
      row.critical = critical.contains({op.kind, op.chunk, op.micro_batch});
      row.compressed = is_send(op.kind) && compressed.contains(schedule::id_of_send(op));
    }
    step.bars.push_back(std::move(row));
  }
  return step;
}

}  // namespace slackline::report
