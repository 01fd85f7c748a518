#pragma once

namespace slackline {

// A config with the required keys and no others.
inline constexpr const char* kSmallestConfig = R"({
  "run": {"dir": "runs/x", "steps": 10},
  "model": {"layers": 2, "hidden": 64, "heads": 4, "sequence": 32, "vocab": 257},
  "data": {"train": [{"path": "corpus/x"}]},
  "batch": {"global": 8}
})";

}  // namespace slackline
