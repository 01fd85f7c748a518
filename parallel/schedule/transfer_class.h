#pragma once

#include <array>
#include <compare>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/schedule/ops.h"

namespace slackline::schedule {

// What a transfer is for. Transfers compete for compression as classes: a site, the stage that
// sends, and the phase of the step.
enum class Site {
  pipeline_forward,
  pipeline_backward,
  data_gradient,
  embedding,
  parameter_gather,
  tensor_forward,  // exchanges within the passes of a stage, over tensor ranks
  tensor_backward
};

inline constexpr std::array<std::string_view, 7> kSiteNames = {"pipeline_forward",
                                                               "pipeline_backward",
                                                               "data_gradient",
                                                               "embedding",
                                                               "parameter_gather",
                                                               "tensor_forward",
                                                               "tensor_backward"};

// In a rank's list warm-up is before its first backward pass, cool-down after its last forward
// pass, so that under 1F1B the cool-down's backward transfers are Optimus-CC's epilogue. Sums of a
// step's gradients happen once a step, beside the pipeline: tail is the last of a stage, made when
// no pass of it is left that could hide them, and a tied table's; step is the others.
enum class Phase { warmup, steady, cooldown, step, tail };

[[nodiscard]] constexpr bool is_once_a_step(Phase phase) {
  return phase == Phase::step || phase == Phase::tail;
}

inline constexpr std::array<std::string_view, 5> kPhaseNames = {
    "warmup", "steady", "cooldown", "step", "tail"};

struct TransferClass {
  Site site{};
  int stage{};  // the sending virtual stage
  Phase phase{};

  auto operator<=>(const TransferClass&) const = default;  // NOLINT(modernize-use-nullptr)
};

// One transfer across a boundary of the pipeline. REQUIRES: a pipeline site.
struct TransferId {
  Site site{};
  int stage{};  // the sending virtual stage
  int micro_batch{};

  auto operator<=>(const TransferId&) const = default;  // NOLINT(modernize-use-nullptr)
};

[[nodiscard]] std::string site_name(Site site);
[[nodiscard]] std::string phase_name(Phase phase);

// "pipeline_backward, stage 2, cooldown"
[[nodiscard]] std::string class_text(const TransferClass& members);

// The phase of each op of one rank; a transfer's is that of the pass that made it.
[[nodiscard]] std::vector<Phase> phases_of(const std::vector<Op>& ops);

// The class of what tensor ranks exchange in a pass. REQUIRES: is_compute(pass.kind).
[[nodiscard]] constexpr TransferClass tensor_class(const Op& pass, Phase phase) {
  const bool forward = pass.kind == OpKind::forward;
  return {forward ? Site::tensor_forward : Site::tensor_backward, pass.chunk, phase};
}

[[nodiscard]] constexpr TransferId id_of_send(const Op& send) {
  const bool forward = send.kind == OpKind::send_forward;
  return {forward ? Site::pipeline_forward : Site::pipeline_backward, send.chunk, send.micro_batch};
}

// The class of every transfer across a boundary of the pipeline.
[[nodiscard]] std::map<TransferId, TransferClass> boundary_classes(const Schedule& schedule);

}  // namespace slackline::schedule
