#include "core/cuda/map.h"
#include "core/kernels/update/outer_coefficients.h"

// Bound by memory: three or four streams in, one to four out, 16 to 32 bytes an element, once a
// round.
// Every rounding is spelled out, so that an element has the same bits whichever way it is read.
namespace slackline::cuda {

namespace {

// One thread for one element: neighbouring threads read neighbouring elements, which alone is near
// the memory's speed.
template <bool nesterov, OuterWrites writes>
__global__ void __launch_bounds__(kMapThreads)
    step_kernel(OuterCoefficients c, std::size_t count, OuterArrays arrays) {
  const std::size_t i = std::size_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const float learned = __fmul_rn(c.scale, arrays.difference[i]);
  const float sum = __fmul_rn(c.shrink, fmaf(c.momentum, arrays.momentum[i], learned));
  const float momentum = fabsf(sum) > c.clip ? copysignf(c.clip, sum) : sum;
  const float old = arrays.anchor[i];
  if (writes == OuterWrites::step_and_difference) {
    arrays.difference[i] = old - arrays.weight[i];
  } else if (writes == OuterWrites::step_and_old_anchor) {
    arrays.difference[i] = old;
  }
  const float change = nesterov ? fmaf(c.momentum, momentum, learned) : momentum;
  const float anchor = fmaf(-c.lr, change, old);
  if (writes != OuterWrites::weight) {
    arrays.momentum[i] = momentum;
    arrays.anchor[i] = anchor;
  }
  arrays.weight[i] = anchor;
}

template <OuterWrites writes>
void start(StreamView stream, const OuterTensors& tensors, const OuterStep& step) {
  const OuterCoefficients c(step);
  const OuterArrays arrays(tensors);
  const std::size_t count = tensors.anchor.num_elements();
  const LaunchShape shape{.grid = blocks_for(count, kMapThreads), .block = kMapThreads};
  step.nesterov ? launch(stream, shape, step_kernel<true, writes>, c, count, arrays)
                : launch(stream, shape, step_kernel<false, writes>, c, count, arrays);
}

__global__ void __launch_bounds__(kMapThreads)
    exchange_kernel(std::size_t count, float* a, float* b) {
  const std::size_t i = std::size_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (i < count) {
    const float was = a[i];
    a[i] = b[i];
    b[i] = was;
  }
}

}  // namespace

void outer_step(StreamView stream, const OuterTensors& tensors, const OuterStep& step) {
  switch (step.writes) {
    case OuterWrites::step:
      return start<OuterWrites::step>(stream, tensors, step);
    case OuterWrites::step_and_difference:
      return start<OuterWrites::step_and_difference>(stream, tensors, step);
    case OuterWrites::step_and_old_anchor:
      return start<OuterWrites::step_and_old_anchor>(stream, tensors, step);
    case OuterWrites::weight:
      return start<OuterWrites::weight>(stream, tensors, step);
  }
}

void exchange(StreamView stream, const Tensor& a, const Tensor& b) {
  const std::size_t count = a.num_elements();
  const LaunchShape shape{.grid = blocks_for(count, kMapThreads), .block = kMapThreads};
  launch(stream, shape, exchange_kernel, count, a.data<float>(), b.data<float>());
}

}  // namespace slackline::cuda
