#include "tools/run/measure/trace_recorder.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "core/comm/text_exchange.h"
#include "core/joined_text.h"
#include "core/log.h"

namespace slackline {

namespace {

constexpr std::int64_t kTracedSteps = 2;
constexpr int kTracedEnds = 8;  // of outer rounds

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

std::string round_name(const RoundTravel& round) {
  return fmt::format("round sent with step {}", round.step);
}

// Fragments may travel at once.
std::string with_fragment(const char* track, const RoundTravel& round) {
  return round.fragment == 0 ? track : fmt::format("{}, fragment {}", track, round.fragment);
}

// Returns the bars of all ranks, on every rank. Blocks.
std::vector<schedule::TraceBar> gathered(Communicator& world,
                                         const std::vector<schedule::TraceBar>& own) {
  const std::string text = joined_of(own, "", [](const schedule::TraceBar& bar) {
    return fmt::format(
        "{}\t{}\t{}\t{}\n", bar.track, bar.name, bar.start.value, bar.duration.value);
  });
  std::vector<schedule::TraceBar> all;
  const std::vector<std::string> texts = exchange_texts(world, text, "bars of a trace");
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
  return all;
}

// Makes times count from the first bar.
void shift_to_zero(std::vector<schedule::TraceBar>& bars) {
  double first = bars.empty() ? 0.0 : bars.front().start.value;
  for (const schedule::TraceBar& bar : bars) {
    first = std::min(first, bar.start.value);
  }
  for (schedule::TraceBar& bar : bars) {
    bar.start = schedule::Seconds{bar.start.value - first};
  }
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
      ends_left_(config.outer.is_on() ? kTracedEnds : 0),
      world_(groups.world),
      writes_(groups.is_first_rank()),
      directory_(&directory) {
  if (traces_ && writes_ && config.run.steps - first_ + 1 < kTracedSteps) {
    log_warning(fmt::format(
        "trace: needs {} steps behind the first one of a process, and run.steps leaves {}; no "
        "trace.json is written",
        kTracedSteps,
        std::max<std::int64_t>(0, config.run.steps - first_ + 1)));
  }
}

void TraceRecorder::add(const AccountedStep& step) {
  const std::int64_t traced = step.record.step - first_;
  if (!traces_) {
    return;
  }
  if (traced >= 0 && traced < kTracedSteps) {
    add_bars(step);
  }
  const bool ends_round = step.record.round && ends_left_ > 0;
  if (ends_round) {
    --ends_left_;
    add_rounds(step);
  }
  if (traced == kTracedSteps - 1 || (ends_round && traced >= kTracedSteps)) {
    write();
  }
}

void TraceRecorder::add_bar(std::string track, std::string name, double begin, double end) {
  bars_.push_back({.rank = world_->rank(),
                   .track = std::move(track),
                   .name = std::move(name),
                   .start = schedule::Seconds{begin},
                   .duration = schedule::Seconds{std::max(0.0, end - begin)}});
}

void TraceRecorder::add_bars(const AccountedStep& step) {
  const MeshModel::StepTimes& times = step.times;
  newest_ = times.updated ? times.update_end : times.norm_end;
  add_bar("step", fmt::format("step {}", step.record.step), times.ops.front().begin, newest_);
  for (const PipelineExecutor::OpTime& op : times.ops) {
    add_bar("compute",
            fmt::format("{} s{} m{}", op_name(op.op.kind), op.op.chunk, op.op.micro_batch),
            op.begin,
            op.end);
  }
  add_bar("compute", "gradient norm", times.norm_begin, times.norm_end);
  if (times.updated) {
    add_bar("compute", "optimizer", times.update_begin, times.update_end);
  }
  for (const Wait& wait : step.transfers) {
    const bool agreement = wait.axis == kReportedAxes.size();
    const char* track = agreement ? "agreement" : kReportedAxes[wait.axis].data();
    add_bar(track, transfer_name(wait.record), wait.record.submitted, wait.record.finished);
    if (wait.record.wait_begin > 0.0) {
      add_bar("waiting", transfer_name(wait.record), wait.record.wait_begin, wait.record.wait_end);
    }
  }
}

void TraceRecorder::add_rounds(const AccountedStep& step) {
  for (const RoundTravel& round : step.rounds.arrived) {
    if (!round.takes_part) {
      continue;
    }
    add_bar(with_fragment("outer rounds", round), round_name(round), round.sent, round.arrived);
    if (round.needed > round.sent) {
      add_bar("steps beside outer rounds",
              fmt::format("steps {} to {}", round.step + 1, step.record.step),
              round.sent,
              round.needed);
    }
    if (round.waited > 0.0) {
      add_bar("waiting for outer rounds",
              round_name(round),
              round.arrived - round.waited,
              round.arrived);
    }
  }
  add_bar("ends of outer rounds",
          fmt::format("end with step {}", step.record.step),
          step.rounds.end_began,
          step.rounds.end_ended);
  under_way_ = step.rounds.under_way;
}

std::vector<schedule::TraceBar> TraceRecorder::unfinished_bars() const {
  if (!under_way_ || !under_way_->takes_part || under_way_->sent >= newest_) {
    return {};
  }
  return {{.rank = world_->rank(),
           .track = with_fragment("outer rounds", *under_way_),
           .name = round_name(*under_way_) + ", still under way",
           .start = schedule::Seconds{under_way_->sent},
           .duration = schedule::Seconds{newest_ - under_way_->sent}}};
}

void TraceRecorder::write() {
  const std::vector<schedule::TraceBar> more = gathered(*world_, std::exchange(bars_, {}));
  const std::vector<schedule::TraceBar> unfinished = gathered(*world_, unfinished_bars());
  if (!writes_) {
    return;
  }
  written_.insert(written_.end(), more.begin(), more.end());
  std::vector<schedule::TraceBar> all = written_;
  all.insert(all.end(), unfinished.begin(), unfinished.end());
  shift_to_zero(all);
  directory_->write("trace.json", schedule::chrome_trace(all));
}

}  // namespace slackline
