#include "tools/run/step_recorder.h"

#include <algorithm>
#include <cstdlib>
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
#include "tools/run/compute_seconds.h"

namespace slackline {

namespace {

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

schedule::Seconds seconds(double value) {
  return schedule::Seconds{value};
}

}  // namespace

StepRecorder::OpSums StepRecorder::sums_of(const MeshModel::StepTimes& times,
                                           const std::vector<Wait>& transfers) const {
  OpSums sums;
  const WaitStretches waits(transfers);
  for (const PipelineExecutor::OpTime& op : times.ops) {
    sums[{op.op.chunk, cost_kind(op.op.kind)}].add(waits.not_waited(op.begin, op.end), 1.0);
  }
  // The optimizer updates all chunks of a rank in one go.
  const int num_chunks = job_.parallel.chunks;
  for (int i = 0; i < num_chunks; ++i) {
    sums[{pipeline_rank_ + i * job_.parallel.pipeline, CostKind::optimizer}].add(
        (times.update_end - times.update_begin) / num_chunks, 1.0);
  }
  return sums;
}

void StepRecorder::add(const MeshModel::StepTimes& times,
                       const std::vector<Wait>& transfers,
                       Steps steps) {
  ++num_steps_;
  for (const auto& [key, sum] : sums_of(times, transfers)) {
    Sum& known = sums_[key];
    if (steps == Steps::mean) {
      known.add(sum.seconds, sum.count);
    } else if (known.count == 0.0 || sum.mean() < known.mean()) {
      known = sum;
    }
  }
  add_codecs(times.codecs, codecs_);
}

void StepRecorder::add_codecs_beside_steps(const std::vector<CodecTimes>& codecs) {
  add_codecs(codecs, codecs_beside_steps_);
}

void StepRecorder::add_codecs(const std::vector<CodecTimes>& codecs, CodecTable& table) {
  for (const CodecTimes& codec : codecs) {
    CodecSums& sums = table[{codec_setting_json(codec.setting), codec.shape, codec.sent_bytes}];
    sums.encode.add(codec.encode.seconds, static_cast<double>(codec.encode.calls));
    sums.decode.add(codec.decode.seconds, static_cast<double>(codec.decode.calls));
  }
}

void StepRecorder::trace(std::int64_t step,
                         const MeshModel::StepTimes& times,
                         const std::vector<Wait>& transfers) {
  const int rank = world_->rank();
  const auto bar = [&](const char* track, std::string name, double begin, double end) {
    bars_.push_back({.rank = rank,
                     .track = track,
                     .name = std::move(name),
                     .start = seconds(begin),
                     .duration = seconds(std::max(0.0, end - begin))});
  };
  bar("step", fmt::format("step {}", step), times.ops.front().begin, times.update_end);
  for (const PipelineExecutor::OpTime& op : times.ops) {
    bar("compute",
        fmt::format("{} s{} m{}", op_name(op.op.kind), op.op.chunk, op.op.micro_batch),
        op.begin,
        op.end);
  }
  bar("compute", "gradient norm", times.norm_begin, times.norm_end);
  bar("compute", "optimizer", times.update_begin, times.update_end);
  for (const Wait& wait : transfers) {
    const bool agreement = wait.axis == kReportedAxes.size();
    const char* track = agreement ? "agreement" : kReportedAxes[wait.axis].data();
    bar(track, transfer_name(wait.record), wait.record.submitted, wait.record.finished);
    if (wait.record.wait_begin > 0.0) {
      bar("waiting", transfer_name(wait.record), wait.record.wait_begin, wait.record.wait_end);
    }
  }
}

StepCosts StepRecorder::costs() {
  // Stage, kind, seconds and count of every rank's sums travel as text.
  std::string own;
  for (const auto& [key, sum] : sums_) {
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

StepRecorder::CodecTable StepRecorder::slowest_codecs(const CodecTable& table) {
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
std::vector<CodecCost> StepRecorder::codec_costs() {
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

std::string StepRecorder::trace_text() {
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
      bar.start = seconds(std::strtod(start.c_str(), nullptr));
      bar.duration = seconds(std::strtod(duration.c_str(), nullptr));
      all.push_back(bar);
    }
  }
  // Times count from the first bar.
  double first = all.empty() ? 0.0 : all.front().start.value;
  for (const schedule::TraceBar& bar : all) {
    first = std::min(first, bar.start.value);
  }
  for (schedule::TraceBar& bar : all) {
    bar.start = seconds(bar.start.value - first);
  }
  return schedule::chrome_trace(all);
}

}  // namespace slackline
