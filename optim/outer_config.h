#pragma once

#include <cstdint>
#include <optional>

#include "core/json_reader.h"

namespace slackline {

// Says how what workers have learned in a round becomes the next anchor (docs/outer.md has
// equations and sources).
enum class OuterMethod {
  none,    // ranks step together, always
  co2,     // Sun et al., ICLR 2024: the average is one round late, and penalized for that
  slowmo,  // Wang et al., ICLR 2020: momentum in units of the inner rate
  diloco,  // Douillard et al., 2023: Nesterov's momentum
};

// By what CO2 divides a late difference.
enum class OuterPenalty {
  none,
  constant,
  gap,             // how far the anchor moved meanwhile, in lengths that a round can go
  gap_per_tensor,  // the same of each tensor by itself
};

// How far a round can go, by which the gap is measured: each step as far as its rate, or as far as
// its updates went.
enum class OuterReach { rate, measured };

enum class OuterClip { none, element, norm };

// Says what becomes of the anchor at a run's end, where rounds are late.
enum class OuterEnding {
  drain,  // the last two rounds move it, as all others have
  mean,   // it is the mean of the workers' last end points
};

// The "outer" section (configs/README.md describes each key).
struct OuterConfig {
  // Whether the difference of a round enters the anchor one round later, having travelled
  // meanwhile.
  [[nodiscard]] bool is_late() const { return delay == 1; }

  // Whether parts of the model travel one after the other, each until the next one is due.
  [[nodiscard]] bool has_fragments() const { return fragments > 1; }

  [[nodiscard]] bool is_on() const { return method != OuterMethod::none; }

  // Whether the penalty goes by how far the anchor moves.
  [[nodiscard]] bool measures_moves() const {
    return penalty == OuterPenalty::gap || penalty == OuterPenalty::gap_per_tensor;
  }

  // Whether a round's update is made while it travels, each worker's part by itself, so that the
  // next start arrives in place of differences: rounds that are late, plain and need no norm.
  [[nodiscard]] bool updates_apart(bool is_coded) const {
    return is_late() && !eager && !is_coded && clip_kind != OuterClip::norm;
  }

  OuterMethod method = OuterMethod::none;
  std::optional<std::int64_t> period{};  // steps of a round; absent: the run chooses
  double lr = 1.0;
  double momentum = 0.5;
  bool nesterov = false;
  OuterPenalty penalty = OuterPenalty::none;
  double penalty_value = 1.0;  // of constant
  OuterReach reach = OuterReach::rate;
  OuterClip clip_kind = OuterClip::none;
  double clip = 1.0;  // in units of parameters
  int delay = 0;
  int fragments = 1;  // parts of the model that travel in turn, each once a period
  double mix = 0.0;   // with fragments: what weights keep of themselves when a part arrives
  OuterEnding ending = OuterEnding::drain;
  bool eager = false;  // rounds begin ahead of the anchor, where the step to come should lead
  double lead = 0.75;  // of that step: the part that the worker's own difference has in it
};

// The largest outer rate, divided by the penalty, below which a late average does not blow up modes
// that one round learns whole, nor an eager round what workers differ in (docs/outer.md, "What is
// stable"). REQUIRES: rounds are late.
[[nodiscard]] double largest_stable_rate(const OuterConfig& config);

// Reads the section and finishes it; throws ConfigError at the first violation. One that is not
// there is `none`.
[[nodiscard]] OuterConfig read_outer_config(JsonReader section);

}  // namespace slackline
