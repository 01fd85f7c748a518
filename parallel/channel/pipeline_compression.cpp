#include "parallel/channel/pipeline_compression.h"

#include <algorithm>
#include <utility>

#include "parallel/predict/step_costs.h"

namespace slackline {

namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::TransferId;

using End = BoundaryCodec::End;

// The transfer that a send begins or a receive ends.
TransferId id_of(const Op& op) {
  if (schedule::is_send(op.kind)) {
    return schedule::id_of_send(op);
  }
  const bool forward = op.kind == OpKind::receive_forward;
  return schedule::id_of_send({.kind = forward ? OpKind::send_forward : OpKind::send_backward,
                               .chunk = schedule::peer_chunk(op),
                               .micro_batch = op.micro_batch});
}

End end_of(const Op& op) {
  return schedule::is_send(op.kind) ? End::sends : End::receives;
}

// Where the boundary of a transfer stands: a state's place does not depend on how stages are
// numbered.
std::string place_of(const TransferId& id, const std::vector<ChunkSlice>& stages) {
  if (stages.empty()) {
    return "";
  }
  const ChunkSlice& sender = stages.at(static_cast<std::size_t>(id.stage));
  const bool forward = id.site == schedule::Site::pipeline_forward;
  return schedule::site_name(id.site) + "/" +
         std::to_string(forward ? sender.last_layer : sender.first_layer);
}

}  // namespace

PipelineCompression::PipelineCompression(const Options& options) : options_(options) {
  for (const std::vector<Op>& ops : options.schedule.ranks) {
    const std::vector<schedule::Phase> phases = schedule::phases_of(ops);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (schedule::is_send(ops[i].kind)) {
        phases_.emplace(schedule::id_of_send(ops[i]), phases[i]);
      }
    }
  }
}

std::optional<BoundaryCodec::Options> PipelineCompression::boundary_of(
    const Op& op, const CompressionPlan& plan) const {
  if (!schedule::is_send(op.kind) && !schedule::is_receive(op.kind)) {
    return std::nullopt;
  }
  const TransferId id = id_of(op);
  const CodecSetting* setting =
      plan.codec_of({.site = id.site, .stage = id.stage, .phase = phases_.at(id)});
  if (setting == nullptr || !pays_at_boundary(*setting, options_.share, options_.dtype)) {
    return std::nullopt;
  }
  BoundaryCodec::Options boundary{
      .setting = *setting,
      .end = end_of(op),
      .name = schedule::site_name(id.site) + "/" + std::to_string(id.stage),
      .place = place_of(id, options_.stages),
      .shape = options_.share,
      .dtype = options_.dtype,
      .device = options_.device,
      .num_micro_batches = options_.schedule.num_micro_batches,
      .seed = options_.seed};
  if (options_.rehearsed != nullptr) {
    const CodecCost cost =
        codec_cost(*options_.rehearsed, *setting, {options_.share.rows, options_.share.columns});
    boundary.rehearsed = {.encode = cost.encode.value, .decode = cost.decode.value};
  }
  return boundary;
}

std::vector<BoundaryCodec::Options> PipelineCompression::boundaries(
    const CompressionPlan& plan) const {
  std::vector<BoundaryCodec::Options> list;
  for (const Op& op : options_.schedule.ranks[static_cast<std::size_t>(options_.pipeline_rank)]) {
    const std::optional<BoundaryCodec::Options> boundary = boundary_of(op, plan);
    if (boundary && std::find(list.begin(), list.end(), *boundary) == list.end()) {
      list.push_back(*boundary);
    }
  }
  return list;
}

void PipelineCompression::set_plan(const CompressionPlan& plan) {
  std::vector<std::unique_ptr<BoundaryCodec>> before = std::exchange(codecs_, {});
  const ByTransfer transfers_before = std::exchange(by_transfer_, {});
  for (const Op& op : options_.schedule.ranks[static_cast<std::size_t>(options_.pipeline_rank)]) {
    if (const std::optional<BoundaryCodec::Options> boundary = boundary_of(op, plan)) {
      by_transfer_[{id_of(op), end_of(op)}] = find_or_make(*boundary, before);
    }
  }
  hand_over(transfers_before);
  hand_over_lazy(before);
}

// Each micro-batch's residual to the codec that sends it from now on.
void PipelineCompression::hand_over(const ByTransfer& before) {
  for (const auto& [key, codec] : by_transfer_) {
    const auto found = before.find(key);
    if (key.second != End::sends || found == before.end() || found->second == codec) {
      continue;
    }
    const auto feedback = [](BoundaryCodec& of) { return of.options().setting.error_feedback; };
    if (feedback(*codec) == ErrorFeedback::immediate &&
        feedback(*found->second) == ErrorFeedback::immediate) {
      codec->take_residual(key.first.micro_batch, *found->second);
    }
  }
}

// What a codec that has ended owes, to any other of its boundary.

void PipelineCompression::hand_over_lazy(const std::vector<std::unique_ptr<BoundaryCodec>>& ended) {
  for (const std::unique_ptr<BoundaryCodec>& codec : ended) {
    if (codec == nullptr || codec->options().setting.error_feedback != ErrorFeedback::lazy) {
      continue;
    }
    const auto heir = std::find_if(
        codecs_.begin(), codecs_.end(), [&](const std::unique_ptr<BoundaryCodec>& candidate) {
          BoundaryCodec::Options options = candidate->options();
          const bool same_feedback =
              options.setting.error_feedback == codec->options().setting.error_feedback;
          options.setting = codec->options().setting;
          return same_feedback && options == codec->options();
        });
    if (heir != codecs_.end()) {
      (*heir)->take_residual(0, *codec);
    }
  }
}

BoundaryCodec* PipelineCompression::find_or_make(
    const BoundaryCodec::Options& options, std::vector<std::unique_ptr<BoundaryCodec>>& before) {
  const auto is_wanted = [&](const std::unique_ptr<BoundaryCodec>& codec) {
    return codec != nullptr && codec->options() == options;
  };
  if (const auto made = std::find_if(codecs_.begin(), codecs_.end(), is_wanted);
      made != codecs_.end()) {
    return made->get();
  }
  const auto kept = std::find_if(before.begin(), before.end(), is_wanted);
  codecs_.push_back(kept != before.end() ? std::move(*kept)
                                         : std::make_unique<BoundaryCodec>(options));
  return codecs_.back().get();
}

BoundaryCodec* PipelineCompression::codec_of(const Op& op) const {
  if (by_transfer_.empty()) {
    return nullptr;
  }
  const auto found = by_transfer_.find({id_of(op), end_of(op)});
  return found == by_transfer_.end() ? nullptr : found->second;
}

std::vector<BoundaryCodec*> PipelineCompression::senders() const {
  std::vector<BoundaryCodec*> list;
  for (const std::unique_ptr<BoundaryCodec>& codec : codecs_) {
    if (codec->options().end == End::sends) {
      list.push_back(codec.get());
    }
  }
  return list;
}

void PipelineCompression::begin_sample() {
  std::map<BoundaryCodec*, BoundarySample::Classes> classes;
  for (const auto& [transfer, codec] : by_transfer_) {
    const auto& [id, end] = transfer;
    if (end == End::sends) {
      classes[codec].emplace(
          id.micro_batch,
          schedule::TransferClass{.site = id.site, .stage = id.stage, .phase = phases_.at(id)});
    }
  }
  for (auto& [codec, sampled] : classes) {
    codec->begin_sample(std::move(sampled));
  }
}

void PipelineCompression::take_times(std::vector<CodecTimes>& times) {
  for (const std::unique_ptr<BoundaryCodec>& codec : codecs_) {
    times.push_back(codec->take_times());
  }
}

void PipelineCompression::take_samples(StepSamples& samples) {
  for (BoundaryCodec* codec : senders()) {
    if (const std::optional<BoundarySample> sample = codec->take_sample()) {
      for (const auto& [members, sums] : sample->sums()) {
        samples.add(members, sums);
      }
    }
  }
}

std::size_t PipelineCompression::workspace_bytes(const Workers& workers) const {
  std::size_t bytes = 0;
  for (const std::unique_ptr<BoundaryCodec>& codec : codecs_) {
    bytes = std::max(bytes, BoundaryCodec::workspace_bytes(codec->options(), workers));
  }
  return bytes;
}

}  // namespace slackline
