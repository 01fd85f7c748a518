#include <algorithm>

#include "core/kernels/for_each_element.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/update/outer_coefficients.h"

// Bound by memory: three or four streams in, one to four out, 16 to 32 bytes an element, once a
// round.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;
using simd::splat;

template <bool nesterov, OuterWrites writes>
void step_vector(const OuterArrays& arrays, const OuterCoefficients& c, std::size_t i, auto part) {
  const Floats learned = hn::Mul(splat(c.scale), simd::load(arrays.difference + i, part));
  const Floats sum =
      hn::Mul(splat(c.shrink),
              hn::MulAdd(splat(c.momentum), simd::load(arrays.momentum + i, part), learned));
  const Floats limit = splat(c.clip);
  const Floats momentum =
      hn::IfThenElse(hn::Gt(hn::Abs(sum), limit), hn::CopySign(limit, sum), sum);
  const Floats old = simd::load(arrays.anchor + i, part);
  if constexpr (writes == OuterWrites::step_and_difference) {
    simd::store(hn::Sub(old, simd::load(arrays.weight + i, part)), arrays.difference + i, part);
  } else if constexpr (writes == OuterWrites::step_and_old_anchor) {
    simd::store(old, arrays.difference + i, part);
  }
  const Floats change = nesterov ? hn::MulAdd(splat(c.momentum), momentum, learned) : momentum;
  const Floats anchor = hn::NegMulAdd(splat(c.lr), change, old);
  if constexpr (writes != OuterWrites::weight) {
    simd::store(momentum, arrays.momentum + i, part);
    simd::store(anchor, arrays.anchor + i, part);
  }
  simd::store(anchor, arrays.weight + i, part);
}

template <bool nesterov, OuterWrites writes>
void step_all(StreamView stream,
              const OuterArrays& arrays,
              const OuterCoefficients& c,
              std::size_t count) {
  simd::for_each_element(stream, count, [=](std::size_t i, auto part) {
    step_vector<nesterov, writes>(arrays, c, i, part);
  });
}

template <OuterWrites writes>
void step_as(StreamView stream, const OuterTensors& tensors, const OuterStep& step) {
  const OuterCoefficients c(step);
  const OuterArrays arrays(tensors);
  const std::size_t count = tensors.anchor.num_elements();
  step.nesterov ? step_all<true, writes>(stream, arrays, c, count)
                : step_all<false, writes>(stream, arrays, c, count);
}

}  // namespace

void outer_step(StreamView stream, const OuterTensors& tensors, const OuterStep& step) {
  switch (step.writes) {
    case OuterWrites::step:
      return step_as<OuterWrites::step>(stream, tensors, step);
    case OuterWrites::step_and_difference:
      return step_as<OuterWrites::step_and_difference>(stream, tensors, step);
    case OuterWrites::step_and_old_anchor:
      return step_as<OuterWrites::step_and_old_anchor>(stream, tensors, step);
    case OuterWrites::weight:
      return step_as<OuterWrites::weight>(stream, tensors, step);
  }
}

void exchange(StreamView stream, const Tensor& a, const Tensor& b) {
  float* const first = a.data<float>();
  float* const second = b.data<float>();
  parallel_ranges(
      stream, a.num_elements(), kElementsPerTask, [&](std::size_t begin, std::size_t end) {
        std::swap_ranges(first + begin, first + end, second + begin);
      });
}

}  // namespace slackline::cpu
