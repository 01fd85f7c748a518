#pragma once

#include "parallel/schedule/ops.h"

namespace slackline {

// Told of the passes of a step as they begin and end.
class PassClock {
 public:
  PassClock() = default;
  virtual ~PassClock() = default;
  PassClock(const PassClock&) = delete;
  PassClock& operator=(const PassClock&) = delete;

  virtual void begin(const schedule::Op& op) = 0;
  virtual void end() = 0;
};

}  // namespace slackline
