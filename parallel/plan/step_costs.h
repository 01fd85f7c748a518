#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compress/codec_setting.h"
#include "core/comm/links/cluster.h"
#include "model/model_config.h"
#include "parallel/plan/codec_errors.h"
#include "parallel/schedule/unit.h"

namespace slackline {

// What the compute of a step takes, measured or assumed: a cost file as a value
// (docs/schedule.md). No cost has waiting for a transfer in it.
//
// Costs of a virtual stage hold for the layout they were measured on. Costs of parts are free of
// layouts: one token's share of a pass, the times of all tensor ranks added up, so that N tokens on
// t tensor ranks take N / t times as long. docs/schedule.md has the list of kinds.
enum class CostKind {
  forward,  // of a virtual stage and one micro-batch
  backward,
  backward_input,
  backward_weight,
  optimizer,       // of a virtual stage, once a step
  data_reduction,  // likewise: transfers of the step's end, where links are not known
  parameter_gather,
  embedding_sync,  // of the step: stage 0
  gradient_norm,
  embedding_forward,  // of a part and one token
  embedding_backward,
  layer_forward,
  layer_backward,
  layer_backward_input,
  layer_backward_weight,
  head_forward,   // the final norm
  head_backward,  // loss, logits and their gradients
  element_update  // of one element by the optimizer
};

inline constexpr std::array<std::string_view, 18> kCostKindNames = {"forward",
                                                                    "backward",
                                                                    "backward_input",
                                                                    "backward_weight",
                                                                    "optimizer",
                                                                    "data_reduction",
                                                                    "parameter_gather",
                                                                    "embedding_sync",
                                                                    "gradient_norm",
                                                                    "embedding_forward",
                                                                    "embedding_backward",
                                                                    "layer_forward",
                                                                    "layer_backward",
                                                                    "layer_backward_input",
                                                                    "layer_backward_weight",
                                                                    "head_forward",
                                                                    "head_backward",
                                                                    "element_update"};

struct OpCost {
  int stage = 0;  // virtual; a part's: where it was measured
  CostKind kind{};
  schedule::Seconds seconds{};

  friend bool operator==(const OpCost&, const OpCost&) = default;
};

// A codec's work on one message.
struct CodecCost {
  CodecSetting codec{};
  std::vector<std::int64_t> shape{};  // of a matrix, or the elements of several together
  std::string dtype{};
  schedule::Seconds encode{};
  schedule::Seconds decode{};
  std::size_t sent_bytes = 0;

  friend bool operator==(const CodecCost&, const CodecCost&) = default;
};

// What costs of virtual stages depend on.
struct CostLayout {
  int tensor = 1;
  std::int64_t tokens = 0;    // of a micro-batch
  std::vector<int> layers{};  // of each virtual stage

  friend bool operator==(const CostLayout&, const CostLayout&) = default;
};

// Speeds of a rank that are assumed where nothing was measured.
struct AssumedSpeeds {
  double flops_per_second = 1e11;  // about one core with 512-bit vectors, fp32
  double bytes_per_second = 1e10;  // of a pass over memory: the optimizer's, a codec's

  friend bool operator==(const AssumedSpeeds&, const AssumedSpeeds&) = default;
};

// Returns what kernels may be taken to reach of a device's peaks.
[[nodiscard]] AssumedSpeeds speeds_of_peaks(double flops_per_second,
                                            double bytes_per_second,
                                            double efficiency = kUsualEfficiency);

// Returns the speeds of the slowest device, for which a step waits, where a cluster says what its
// devices are; else those of a core.
[[nodiscard]] AssumedSpeeds assumed_speeds(const std::optional<Cluster>& cluster, DType precision);

struct StepCosts {
  std::optional<CostLayout> layout{};  // absent: that of whoever uses them
  std::optional<ModelConfig> model{};  // likewise; its layers are the layout's
  std::optional<DType> precision{};    // likewise
  std::vector<OpCost> ops{};
  std::vector<CodecCost> codecs{};
  std::vector<Cluster::Nodes> nodes{};  // of the ranks whose links were measured; empty: of one
  std::optional<Cluster::Link> node_link{};
  std::optional<Cluster::Link> network_link{};
  // Ranks had no core to spare where this was measured: codecs run instead of compute, not beside.
  bool codecs_take_compute = false;
  AssumedSpeeds speeds{};  // of what was not measured
  CodecErrors errors{};    // of candidates, as far as they were tried

  // Means over the entries of a kind; nothing where there is none.
  [[nodiscard]] std::optional<schedule::Seconds> of_stage(int stage, CostKind kind) const;
  [[nodiscard]] std::optional<schedule::Seconds> of_part(CostKind kind) const;

  // Returns the cost of a message of `shape` as measured, or else that of the shape nearest in size
  // with the same setting, scaled by elements; nothing where there is none.
  [[nodiscard]] std::optional<CodecCost> of_codec(const CodecSetting& setting,
                                                  const std::vector<std::int64_t>& shape) const;
};

// Returns the cost of a message of `shape` (as in CodecCost) as measured where it was, else from
// the codec's floating-point operations and the memory that it reads and writes.
[[nodiscard]] CodecCost codec_cost(const StepCosts& costs,
                                   const CodecSetting& setting,
                                   const std::vector<std::int64_t>& shape);

}  // namespace slackline
