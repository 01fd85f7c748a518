#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slackline {

// One key of a config and what it is set to.
struct SweepSetting {
  std::string key;    // dotted, as --set takes it
  std::string value;  // as JSON

  bool operator==(const SweepSetting&) const = default;
};

// A point of a grid: one value for each of its keys.
using SweepSettings = std::vector<SweepSetting>;

// The points of a grid, given as JSON: an object of keys with a list of values each, of which every
// combination is a point, or a list of such objects. The last key varies fastest. Pure. Throws
// ConfigError that starts with where in the grid: nothing to vary, no list, a key or a point that
// is there twice, if only by value (1 and 1.0), too many points, run.dir.
[[nodiscard]] std::vector<SweepSettings> expand_grid(std::string_view grid);

// "optimizer.lr=0.1, run.seed=2", for messages.
[[nodiscard]] std::string point_text(const SweepSettings& settings);

// A name for the point's directory, the same whatever else the grid holds and in whichever order
// its keys stand: "lr-0.1_seed-2-5f0c99ab", the end a hash of the settings.
[[nodiscard]] std::string point_name(const SweepSettings& settings);

}  // namespace slackline
