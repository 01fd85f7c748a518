#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec_setting.h"
#include "core/checkpoint/checkpoint.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/compression_plan.h"

namespace slackline {

// How a training compressed activations on their way between pipeline stages, and on what matrices:
// what inference needs to do the same. The manifest's `codec` document.
struct ActivationCompression {
  struct Boundary {
    int stage = 0;        // the sending virtual stage
    int after_layer = 0;  // its last layer, an index of the model's
    CodecSetting codec{};

    friend bool operator==(const Boundary&, const Boundary&) = default;
  };

  std::uint64_t seed = 0;  // of the run: codecs draw from it
  // A message before it is cut over the tensor ranks: a micro-batch's tokens by channels.
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  int tensor = 1;                      // tensor ranks
  std::vector<Boundary> boundaries{};  // by stage

  friend bool operator==(const ActivationCompression&, const ActivationCompression&) = default;
};

// Describes a plan in force; empty where it compresses no activations. Phases may have different
// codecs: a boundary gets that of its steady phase, by which most messages go, none where those
// are plain; without a steady phase the first.
[[nodiscard]] std::optional<ActivationCompression> activation_compression(
    const CompressionPlan& plan, const MeshJob& job, std::uint64_t seed);

//   {"seed": 1234, "tokens": 128, "channels": 32, "tensor": 1,
//    "boundaries": [{"stage": 0, "after_layer": 0, "codec": {"codec": "top_k", "ratio": 0.1}}]}
[[nodiscard]] std::string activation_compression_json(const ActivationCompression& compression);

// What a checkpoint's document says; empty where its training compressed no activations. Throws
// FileError for a document that does not fit its model.
[[nodiscard]] std::optional<ActivationCompression> stored_activation_compression(
    const Checkpoint& checkpoint, const ModelConfig& model);

}  // namespace slackline
