#pragma once

#include <limits>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// One outer step of training with local updates (docs/outer.md), in one pass over memory. With d
// what workers have learned, m its momentum, a the anchor that all workers share, and w the weights
// of this one:
//   m = shrink (momentum m + scale d), each element limited to [-clip, clip]
//   a -= lr m, or lr (scale d + momentum m)      plain, or Nesterov's
//   w = a
// OuterWrites says what of it is written, and what d is afterwards. All f32, of one shape; no two
// overlap. Element by element, so any split of a tensor gives the same bits.
struct OuterTensors {
  Tensor difference{};  // d
  Tensor momentum{};    // m
  Tensor anchor{};      // a
  Tensor weight{};      // w
};

enum class OuterWrites {
  step,                 // m, a and w; d stays
  step_and_difference,  // d ends as a - w, of both before the step: what the next round sends
  step_and_old_anchor,  // d ends as a before the step
  weight,               // w alone: where the step would lead
};

struct OuterStep {
  double lr = 1.0;
  double momentum = 0.0;
  double scale = 1.0;
  double shrink = 1.0;  // holds the norm of all momentum, which no element knows
  double clip = std::numeric_limits<double>::infinity();
  bool nesterov = false;
  OuterWrites writes = OuterWrites::step;
};

void outer_step(StreamView stream, const OuterTensors& tensors, const OuterStep& step);

// a becomes b, and b what a was. Tensors of one shape, f32, that do not overlap.
void exchange(StreamView stream, const Tensor& a, const Tensor& b);

}  // namespace slackline
