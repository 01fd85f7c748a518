#include "parallel/plan/pipeline_boundaries.h"

#include <algorithm>

#include "compress/codec_bytes.h"
#include "core/tensor/arena.h"
#include "parallel/mesh/stage_split.h"

namespace slackline {

using schedule::Op;
using schedule::OpKind;

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

MatrixShape boundary_share(const MeshJob& job) {
  return share_shape(job.micro_batch.num_tokens(), job.model.hidden, job.parallel.tensor);
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

PipelineBoundaries::PipelineBoundaries(const MeshJob& job,
                                       const RankPlan& rank,
                                       Device device,
                                       std::uint64_t seed)
    : ops_(rank.executor.schedule().ranks[static_cast<std::size_t>(rank.sync.place.pipeline)]),
      stages_(split_layers(job.model, job.parallel)),
      common_{.shape = boundary_share(job),
              .dtype = job.precision,
              .device = device,
              .num_micro_batches = rank.executor.schedule().num_micro_batches,
              .seed = seed},
      classes_(schedule::boundary_classes(rank.executor.schedule())) {}

PipelineBoundaries::Key PipelineBoundaries::key_of(const Op& op) {
  if (schedule::is_send(op.kind)) {
    return {schedule::id_of_send(op), BoundaryEnd::Side::sends};
  }
  const bool forward = op.kind == OpKind::receive_forward;
  return {schedule::id_of_send({.kind = forward ? OpKind::send_forward : OpKind::send_backward,
                                .chunk = schedule::peer_chunk(op),
                                .micro_batch = op.micro_batch}),
          BoundaryEnd::Side::receives};
}

std::optional<BoundaryEnd> PipelineBoundaries::end_of(const Op& op,
                                                      const CompressionPlan& plan) const {
  if (!schedule::is_send(op.kind) && !schedule::is_receive(op.kind)) {
    return std::nullopt;
  }
  const auto [id, side] = key_of(op);
  const CodecSetting* setting = plan.setting_of(class_of(id));
  if (setting == nullptr || !pays_at_boundary(*setting, common_.shape, common_.dtype)) {
    return std::nullopt;
  }
  const std::string site = schedule::site_name(id.site);
  // A state's place counts layers: it does not depend on how stages are numbered.
  const ChunkSlice& sender = stages_.at(static_cast<std::size_t>(id.stage));
  const bool forward = id.site == schedule::Site::pipeline_forward;
  const int layers_before = forward ? sender.last_layer : sender.first_layer;
  BoundaryEnd end = common_;
  end.setting = *setting;
  end.side = side;
  end.name = site + "/" + std::to_string(id.stage);
  end.place = site + "/" + std::to_string(layers_before);
  return end;
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
