#include "tools/run/measure/cost_recorder.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "core/check.h"
#include "core/comm/text_exchange.h"
#include "parallel/predict/assumed_costs.h"
#include "tools/run/measure/compute_seconds.h"

namespace slackline {

namespace {

// Adds a step's times, or keeps those with the smaller mean.
void add_step(CallTimes& sum, const CallTimes& step, bool keeps_quickest) {
  if (!keeps_quickest) {
    sum += step;
  } else if (sum.calls == 0 || step.mean() < sum.mean()) {
    sum = step;
  }
}

}  // namespace

CostKind cost_kind(schedule::OpKind kind) {
  switch (kind) {
    case schedule::OpKind::forward:
      return CostKind::forward;
    case schedule::OpKind::backward:
      return CostKind::backward;
    case schedule::OpKind::backward_input:
      return CostKind::backward_input;
    case schedule::OpKind::backward_weight:
      return CostKind::backward_weight;
    default:
      break;
  }
  SL_CHECK(false, "an op that computes nothing has no cost");
  return CostKind::forward;
}

bool CostRecorder::add(const AccountedStep& step, const MeasuredSteps& measured) {
  if (!measured.has(step.record.step)) {
    return false;
  }
  if (step.record.step == measured.first) {
    step_seconds_ = {};
    ops_.clear();
    codecs_ = {};
  }
  add_step(step_seconds_, {.seconds = step.record.step_seconds, .calls = 1}, measured.at_once);
  for (const auto& [key, sum] : op_sums(step)) {
    add_step(ops_[key], sum, measured.at_once);
  }
  codecs_.add_in_step(step.times.codecs);
  return step.record.step == measured.last;
}

CostRecorder::OpSums CostRecorder::op_sums(const AccountedStep& step) const {
  OpSums sums;
  const WaitStretches waits(step.transfers);
  for (const PipelineExecutor::OpTime& op : step.times.ops) {
    sums[{op.op.chunk, cost_kind(op.op.kind)}] +=
        {.seconds = waits.not_waited(op.begin, op.end), .calls = 1};
  }
  // The optimizer updates all chunks of a rank in one go. A step that was skipped has no update,
  // and of the first one that was queued on a device it is not known how long it took.
  if (!step.times.updated || step.times.update_end <= step.times.update_begin) {
    return sums;
  }
  const int num_chunks = job_.parallel.chunks;
  for (int i = 0; i < num_chunks; ++i) {
    sums[{pipeline_rank_ + i * job_.parallel.pipeline, CostKind::optimizer}] +=
        {.seconds = (step.times.update_end - step.times.update_begin) / num_chunks, .calls = 1};
  }
  return sums;
}

StepCosts CostRecorder::costs() {
  // Stage, kind, seconds and count of every rank's sums travel as text.
  std::string own;
  for (const auto& [key, sum] : ops_) {
    own += fmt::format(
        "{} {} {} {}\n", key.first, static_cast<int>(key.second), sum.seconds, sum.calls);
  }
  std::map<std::pair<int, CostKind>, double> slowest;
  for (const std::string& text : exchange_texts(*world_, own, "costs of ops")) {
    std::istringstream lines(text);
    int stage = 0;
    int kind = 0;
    CallTimes sum;
    while (lines >> stage >> kind >> sum.seconds >> sum.calls) {
      double& mean = slowest[{stage, static_cast<CostKind>(kind)}];
      mean = std::max(mean, sum.mean());
    }
  }
  StepCosts costs;
  for (const auto& [key, mean] : slowest) {
    costs.ops.push_back({.stage = key.first, .kind = key.second, .seconds = {mean}});
  }
  costs.codecs = codecs_.costs(*world_);
  return with_parts(job_, costs);
}

}  // namespace slackline
