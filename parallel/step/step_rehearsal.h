#pragma once

#include <memory>

#include "core/rehearsal_clock.h"
#include "parallel/channel/codec_maker.h"
#include "parallel/plan/cost_model.h"
#include "parallel/plan/step_costs.h"

namespace slackline {

// Stands for what one rank computes in a step on the rehearsal device: passes, norms, updates and
// codecs take the seconds of their costs, and nothing is computed. Whoever runs the step gives it
// the stream with clock() and the codecs of codec_maker(). Belongs to the rank's thread.
class StepRehearsal {
 public:
  struct Costs {
    schedule::CostModel ops{};                  // transfers apart
    std::shared_ptr<const StepCosts> codecs{};  // never null
  };

  explicit StepRehearsal(const Costs& costs) : costs_(costs) {}

  [[nodiscard]] RehearsalClock* clock() { return &clock_; }

  [[nodiscard]] CodecMaker codec_maker() const;

  // Called as each pass of the step begins and ends.
  void begin(const schedule::Op& op);

  void end() { clock_.end(); }

  // What belongs to no pass: the squares of gradients, and the update.
  void take_norms();
  void update();

 private:
  Costs costs_;
  RehearsalClock clock_;
};

}  // namespace slackline
