#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "model/model_slice.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/schedule/ops.h"

namespace slackline {

// One end of one direction of a boundary between stages whose messages are compressed.
struct BoundaryEnd {
  enum class Side { sends, receives };

  CodecSetting setting{};
  Side side = Side::sends;
  std::string name{};        // "pipeline_backward/3": site and sending virtual stage, for draws
  std::string place{};       // "pipeline_backward/5": site and layers before it, for its state
  MatrixShape shape{};       // of this rank's share
  DType dtype = DType::f32;  // of the boundary tensor
  Device device = Device::cpu;
  int num_micro_batches = 1;
  std::uint64_t seed = 0;

  friend bool operator==(const BoundaryEnd&, const BoundaryEnd&) = default;
};

// Whether a codec is to be used for a boundary's messages: where its frame is smaller than the
// plain message, whose elements are of dtype `plain`, or where its setting says always.
[[nodiscard]] bool pays_at_boundary(const CodecSetting& setting,
                                    const MatrixShape& share,
                                    DType plain);

// The view of `elements` of a boundary tensor of C channels as a matrix: tokens by channels; where
// the tensor ranks' shares cut through tokens, equal parts of each token's channels by rank.
[[nodiscard]] MatrixShape share_shape(std::int64_t tokens, std::int64_t C, int tensor_size);

// A rank's share of every tensor between the job's stages.
[[nodiscard]] MatrixShape boundary_share(const MeshJob& job);

[[nodiscard]] std::vector<CodecPart> boundary_parts(const BoundaryEnd& end);

// Codecs work on f32: bf16 boundaries pass through a widened copy in the workspace.
[[nodiscard]] bool widens(const BoundaryEnd& end);

// Scratch of the codec at this end, `codec` being one for boundary_parts().
[[nodiscard]] std::size_t boundary_workspace_bytes(const BoundaryEnd& end,
                                                   const Codec& codec,
                                                   const Workers& workers);

// Which sends and receives of one rank a plan compresses, and by what. A value.
class PipelineBoundaries {
 public:
  // `device` is where codecs run, `seed` the run's.
  PipelineBoundaries(const MeshJob& job,
                     const RankPlan& rank,
                     Device device = Device::cpu,
                     std::uint64_t seed = 0);

  // The rank's list.
  [[nodiscard]] const std::vector<schedule::Op>& ops() const { return ops_; }

  // This rank's share of every boundary tensor.
  [[nodiscard]] const MatrixShape& share() const { return common_.shape; }

  // One end of one transfer.
  using Key = std::pair<schedule::TransferId, BoundaryEnd::Side>;

  // A receive's transfer is its sender's. REQUIRES: the op is a send or a receive.
  [[nodiscard]] static Key key_of(const schedule::Op& op);

  [[nodiscard]] const schedule::TransferClass& class_of(const schedule::TransferId& id) const {
    return classes_.at(id);
  }

  // Absent where the op transfers nothing, or plain.
  [[nodiscard]] std::optional<BoundaryEnd> end_of(const schedule::Op& op,
                                                  const CompressionPlan& plan) const;

  // Returns each end once.
  [[nodiscard]] std::vector<BoundaryEnd> ends(const CompressionPlan& plan) const;

 private:
  std::vector<schedule::Op> ops_;
  std::vector<ChunkSlice> stages_;                                   // every virtual stage
  BoundaryEnd common_;                                               // what all ends have in common
  std::map<schedule::TransferId, schedule::TransferClass> classes_;  // of all ranks' sends
};

}  // namespace slackline
