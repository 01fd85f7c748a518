#include "tools/run/measure/cost_recorder.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/check.h"
#include "core/comm/text_exchange.h"
#include "core/joined_text.h"
#include "core/json_reader.h"
#include "parallel/predict/assumed_costs.h"
#include "tools/run/measure/compute_seconds.h"

namespace slackline {

namespace {

schedule::Seconds seconds(double value) {
  return schedule::Seconds{value};
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

void CostRecorder::Sum::add_step(const Sum& step, bool keeps_quickest) {
  if (!keeps_quickest) {
    add(step.seconds, step.count);
  } else if (count == 0.0 || step.mean() < mean()) {
    *this = step;
  }
}

bool CostRecorder::add(const AccountedStep& step, const MeasuredSteps& measured) {
  if (!measured.has(step.record.step)) {
    return false;
  }
  if (step.record.step == measured.first) {
    restart();
  }
  step_seconds_.add_step({.seconds = step.record.step_seconds, .count = 1.0}, measured.at_once);
  for (const auto& [key, sum] : op_sums(step)) {
    ops_[key].add_step(sum, measured.at_once);
  }
  add_codecs(step.times.codecs, codecs_);
  return step.record.step == measured.last;
}

void CostRecorder::restart() {
  step_seconds_ = {};
  ops_.clear();
  codecs_.clear();
  codecs_beside_steps_.clear();
}

CostRecorder::OpSums CostRecorder::op_sums(const AccountedStep& step) const {
  OpSums sums;
  const WaitStretches waits(step.transfers);
  for (const PipelineExecutor::OpTime& op : step.times.ops) {
    sums[{op.op.chunk, cost_kind(op.op.kind)}].add(waits.not_waited(op.begin, op.end), 1.0);
  }
  // The optimizer updates all chunks of a rank in one go.
  const int num_chunks = job_.parallel.chunks;
  for (int i = 0; i < num_chunks; ++i) {
    sums[{pipeline_rank_ + i * job_.parallel.pipeline, CostKind::optimizer}].add(
        (step.times.update_end - step.times.update_begin) / num_chunks, 1.0);
  }
  return sums;
}

void CostRecorder::add_codecs_beside_steps(const std::vector<CodecTimes>& codecs) {
  add_codecs(codecs, codecs_beside_steps_);
}

void CostRecorder::add_codecs(const std::vector<CodecTimes>& codecs, CodecTable& table) {
  for (const CodecTimes& codec : codecs) {
    CodecSums& sums = table[{codec_setting_json(codec.setting), codec.shape, codec.sent_bytes}];
    sums.encode.add(codec.encode.seconds, static_cast<double>(codec.encode.calls));
    sums.decode.add(codec.decode.seconds, static_cast<double>(codec.decode.calls));
  }
}

StepCosts CostRecorder::costs() {
  // Stage, kind, seconds and count of every rank's sums travel as text.
  std::string own;
  for (const auto& [key, sum] : ops_) {
    own += fmt::format(
        "{} {} {} {}\n", key.first, static_cast<int>(key.second), sum.seconds, sum.count);
  }
  std::map<std::pair<int, CostKind>, double> slowest;
  for (const std::string& text : exchange_texts(*world_, own, "costs of ops")) {
    std::istringstream lines(text);
    int stage = 0;
    int kind = 0;
    Sum sum;
    while (lines >> stage >> kind >> sum.seconds >> sum.count) {
      double& mean = slowest[{stage, static_cast<CostKind>(kind)}];
      mean = std::max(mean, sum.mean());
    }
  }
  StepCosts costs;
  for (const auto& [key, mean] : slowest) {
    costs.ops.push_back({.stage = key.first, .kind = key.second, .seconds = seconds(mean)});
  }
  costs.codecs = codec_costs();
  return with_parts(job_, costs);
}

CostRecorder::CodecTable CostRecorder::slowest_codecs(const CodecTable& table) {
  std::string own;
  for (const auto& [key, sums] : table) {
    own += fmt::format("{}\n{} {} {} {}\n",
                       key.codec,
                       key.sent_bytes,
                       sums.encode.mean(),
                       sums.decode.mean(),
                       joined(key.shape, " "));
  }
  CodecTable slowest;
  for (const std::string& text : exchange_texts(*world_, own, "costs of codecs")) {
    std::istringstream lines(text);
    CodecKey key;
    std::string numbers;
    while (std::getline(lines, key.codec) && std::getline(lines, numbers)) {
      std::istringstream fields(numbers);
      double encode = 0.0;
      double decode = 0.0;
      fields >> key.sent_bytes >> encode >> decode;
      key.shape.assign(std::istream_iterator<std::int64_t>(fields), {});
      CodecSums& sums = slowest[key];
      sums.encode = {.seconds = std::max(sums.encode.seconds, encode), .count = 1.0};
      sums.decode = {.seconds = std::max(sums.decode.seconds, decode), .count = 1.0};
    }
  }
  return slowest;
}

// What a codec took in steps replaces what it took beside them, whatever the shapes.
std::vector<CodecCost> CostRecorder::codec_costs() {
  CodecTable all = slowest_codecs(codecs_);
  std::set<std::string> used;
  for (const auto& [key, sums] : all) {
    used.insert(key.codec);
  }
  for (const auto& [key, sums] : slowest_codecs(codecs_beside_steps_)) {
    if (!used.contains(key.codec)) {
      all.emplace(key, sums);
    }
  }
  std::vector<CodecCost> costs;
  for (const auto& [key, sums] : all) {
    JsonReader setting = JsonReader::parse(key.codec, "a codec that another rank measured");
    costs.push_back({.codec = read_codec_setting(setting),
                     .shape = key.shape,
                     .dtype = std::string(name_of(DType::f32)),
                     .encode = seconds(sums.encode.mean()),
                     .decode = seconds(sums.decode.mean()),
                     .sent_bytes = key.sent_bytes});
  }
  return costs;
}

}  // namespace slackline
