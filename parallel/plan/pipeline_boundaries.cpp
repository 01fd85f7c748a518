#include "parallel/plan/pipeline_boundaries.h"

#include <algorithm>

#include "compress/codec_bytes.h"
#include "core/tensor/arena.h"

namespace slackline {

namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::TransferId;

// Where the boundary of a transfer stands: a state's place does not depend on how stages are
// numbered.
std::string state_place(const TransferId& id, const std::vector<ChunkSlice>& stages) {
  if (stages.empty()) {
    return "";
  }
  const ChunkSlice& sender = stages.at(static_cast<std::size_t>(id.stage));
  const bool forward = id.site == schedule::Site::pipeline_forward;
  return schedule::site_name(id.site) + "/" +
         std::to_string(forward ? sender.last_layer : sender.first_layer);
}

}  // namespace

bool pays_at_boundary(const CodecSetting& setting, const MatrixShape& share, DType plain) {
  return setting.always || frame_bytes(setting, {{.name = "", .shape = share}}) <
                               share.num_elements() * size_of(plain);
}

MatrixShape share_shape(std::int64_t tokens, std::int64_t C, int tensor_size) {
  if (tokens % tensor_size == 0) {
    return {.rows = tokens / tensor_size, .columns = C};
  }
  return {.rows = tokens, .columns = C / tensor_size};  // heads divide, so channels do
}

std::vector<CodecPart> boundary_parts(const BoundaryEnd& end) {
  return {{.name = end.name, .shape = end.shape}};
}

bool widens(const BoundaryEnd& end) {
  return end.dtype != DType::f32;
}

std::size_t boundary_workspace_bytes(const BoundaryEnd& end,
                                     const Codec& codec,
                                     const Workers& workers) {
  const std::size_t widened =
      widens(end) ? Arena::aligned_bytes(DType::f32, {end.shape.rows, end.shape.columns}) : 0;
  return widened + codec.workspace_bytes(workers);
}

PipelineBoundaries::PipelineBoundaries(const Options& options) : options_(options) {
  for (const std::vector<Op>& ops : options.schedule.ranks) {
    const std::vector<schedule::Phase> phases = schedule::phases_of(ops);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (schedule::is_send(ops[i].kind)) {
        phases_.emplace(schedule::id_of_send(ops[i]), phases[i]);
      }
    }
  }
}

const std::vector<Op>& PipelineBoundaries::ops() const {
  return options_.schedule.ranks[static_cast<std::size_t>(options_.pipeline_rank)];
}

TransferId PipelineBoundaries::id_of(const Op& op) {
  if (schedule::is_send(op.kind)) {
    return schedule::id_of_send(op);
  }
  const bool forward = op.kind == OpKind::receive_forward;
  return schedule::id_of_send({.kind = forward ? OpKind::send_forward : OpKind::send_backward,
                               .chunk = schedule::peer_chunk(op),
                               .micro_batch = op.micro_batch});
}

BoundaryEnd::Side PipelineBoundaries::side_of(const Op& op) {
  return schedule::is_send(op.kind) ? BoundaryEnd::Side::sends : BoundaryEnd::Side::receives;
}

schedule::TransferClass PipelineBoundaries::class_of(const TransferId& id) const {
  return {.site = id.site, .stage = id.stage, .phase = phases_.at(id)};
}

std::optional<BoundaryEnd> PipelineBoundaries::end_of(const Op& op,
                                                      const CompressionPlan& plan) const {
  if (!schedule::is_send(op.kind) && !schedule::is_receive(op.kind)) {
    return std::nullopt;
  }
  const TransferId id = id_of(op);
  const CodecSetting* setting = plan.setting_of(class_of(id));
  if (setting == nullptr || !pays_at_boundary(*setting, options_.share, options_.dtype)) {
    return std::nullopt;
  }
  return BoundaryEnd{.setting = *setting,
                     .side = side_of(op),
                     .name = schedule::site_name(id.site) + "/" + std::to_string(id.stage),
                     .place = state_place(id, options_.stages),
                     .shape = options_.share,
                     .dtype = options_.dtype,
                     .device = options_.device,
                     .num_micro_batches = options_.schedule.num_micro_batches,
                     .seed = options_.seed};
}

std::vector<BoundaryEnd> PipelineBoundaries::ends(const CompressionPlan& plan) const {
  std::vector<BoundaryEnd> list;
  for (const Op& op : ops()) {
    const std::optional<BoundaryEnd> end = end_of(op, plan);
    if (end && std::find(list.begin(), list.end(), *end) == list.end()) {
      list.push_back(*end);
    }
  }
  return list;
}

}  // namespace slackline
