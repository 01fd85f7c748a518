#include "tools/run/measure/trace_recorder.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "core/comm/text_exchange.h"
#include "tools/run/measure/cost_recorder.h"

namespace slackline {

namespace {

constexpr std::int64_t kTracedSteps = 2;

const char* op_name(schedule::OpKind kind) {
  return kCostKindNames[static_cast<std::size_t>(cost_kind(kind))].data();
}

std::string transfer_name(const TransferRecord& record) {
  std::string name = fmt::format("{}: {}", name_of(record.kind), record.note.what);
  if (record.note.micro_batch >= 0) {
    name += fmt::format(" s{} m{}", record.note.stage, record.note.micro_batch);
  }
  return name;
}

// The first step of a process is slower, and so is the first one of a plan.
std::int64_t first_traced_step(std::int64_t first_step,
                               const MeasuredSteps& measured,
                               std::int64_t last_step) {
  const std::int64_t settled = measured.last + 2;
  const bool lasts = last_step >= settled + kTracedSteps - 1;
  return measured.at_once && lasts ? settled : first_step + 1;
}

}  // namespace

TraceRecorder::TraceRecorder(const TrainConfig& config,
                             std::int64_t first_step,
                             const MeasuredSteps& measured,
                             const Groups& groups,
                             RunDirectory& directory)
    : traces_(config.trace),
      first_(first_traced_step(first_step, measured, config.run.steps)),
      world_(groups.world),
      writes_(groups.is_first_rank()),
      directory_(&directory) {}

void TraceRecorder::add(const AccountedStep& step) {
  const std::int64_t traced = step.record.step - first_;
  if (!traces_ || traced < 0 || traced >= kTracedSteps) {
    return;
  }
  add_bars(step);
  if (traced == kTracedSteps - 1) {
    const std::string trace = chrome_text();
    if (writes_) {
      directory_->write_trace(trace);
    }
  }
}

void TraceRecorder::add_bars(const AccountedStep& step) {
  const MeshModel::StepTimes& times = step.times;
  const int rank = world_->rank();
  const auto bar = [&](const char* track, std::string name, double begin, double end) {
    bars_.push_back({.rank = rank,
                     .track = track,
                     .name = std::move(name),
                     .start = schedule::Seconds{begin},
                     .duration = schedule::Seconds{std::max(0.0, end - begin)}});
  };
  bar("step", fmt::format("step {}", step.record.step), times.ops.front().begin, times.update_end);
  for (const PipelineExecutor::OpTime& op : times.ops) {
    bar("compute",
        fmt::format("{} s{} m{}", op_name(op.op.kind), op.op.chunk, op.op.micro_batch),
        op.begin,
        op.end);
  }
  bar("compute", "gradient norm", times.norm_begin, times.norm_end);
  bar("compute", "optimizer", times.update_begin, times.update_end);
  for (const Wait& wait : step.transfers) {
    const bool agreement = wait.axis == kReportedAxes.size();
    const char* track = agreement ? "agreement" : kReportedAxes[wait.axis].data();
    bar(track, transfer_name(wait.record), wait.record.submitted, wait.record.finished);
    if (wait.record.wait_begin > 0.0) {
      bar("waiting", transfer_name(wait.record), wait.record.wait_begin, wait.record.wait_end);
    }
  }
}

std::string TraceRecorder::chrome_text() const {
  std::string own;
  for (const schedule::TraceBar& bar : bars_) {
    own +=
        fmt::format("{}\t{}\t{}\t{}\n", bar.track, bar.name, bar.start.value, bar.duration.value);
  }
  std::vector<schedule::TraceBar> all;
  const std::vector<std::string> texts = exchange_texts(*world_, own, "bars of a trace");
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    schedule::TraceBar bar{.rank = static_cast<int>(rank)};
    std::string start;
    std::string duration;
    while (std::getline(lines, bar.track, '\t') && std::getline(lines, bar.name, '\t') &&
           std::getline(lines, start, '\t') && std::getline(lines, duration)) {
      bar.start = schedule::Seconds{std::strtod(start.c_str(), nullptr)};
      bar.duration = schedule::Seconds{std::strtod(duration.c_str(), nullptr)};
      all.push_back(bar);
    }
  }
  // Times count from the first bar.
  double first = all.empty() ? 0.0 : all.front().start.value;
  for (const schedule::TraceBar& bar : all) {
    first = std::min(first, bar.start.value);
  }
  for (schedule::TraceBar& bar : all) {
    bar.start = schedule::Seconds{bar.start.value - first};
  }
  return schedule::chrome_trace(all);
}

}  // namespace slackline
