#include "core/cuda/map.h"
#include "core/kernels/update/outer_coefficients.h"

// Bound by memory: four streams in, three or four out, 28 or 32 bytes an element, once a round.
// Every rounding is spelled out, so that an element has the same bits whichever way it is read.
namespace slackline::cuda {

namespace {

struct Arrays {
  float* difference;
  float* momentum;
  float* anchor;
  float* weight;
};

// One thread for one element: neighbouring threads read neighbouring elements, which alone is near
// the memory's speed.
template <bool nesterov, bool sends>
__global__ void __launch_bounds__(kMapThreads)
    step_kernel(OuterCoefficients c, std::size_t count, Arrays arrays) {
  const std::size_t i = std::size_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const float learned = __fmul_rn(c.scale, arrays.difference[i]);
  const float sum = fmaf(c.momentum, arrays.momentum[i], learned);
  const float momentum = fabsf(sum) > c.clip ? copysignf(c.clip, sum) : sum;
  const float old = arrays.anchor[i];
  if (sends) {
    arrays.difference[i] = old - arrays.weight[i];
  }
  const float change = nesterov ? fmaf(c.momentum, momentum, learned) : momentum;
  const float anchor = fmaf(-c.lr, change, old);
  arrays.momentum[i] = momentum;
  arrays.anchor[i] = anchor;
  arrays.weight[i] = anchor;
}

template <bool nesterov, bool sends>
void start(StreamView stream, const Arrays& arrays, const OuterCoefficients& c, std::size_t count) {
  const LaunchShape shape{.grid = blocks_for(count, kMapThreads), .block = kMapThreads};
  launch(stream, shape, step_kernel<nesterov, sends>, c, count, arrays);
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
  const OuterCoefficients c(step);
  const Arrays arrays{tensors.difference.data<float>(),
                      tensors.momentum.data<float>(),
                      tensors.anchor.data<float>(),
                      tensors.weight.data<float>()};
  const std::size_t count = tensors.anchor.num_elements();
  if (step.nesterov) {
    step.sends ? start<true, true>(stream, arrays, c, count)
               : start<true, false>(stream, arrays, c, count);
  } else {
    step.sends ? start<false, true>(stream, arrays, c, count)
               : start<false, false>(stream, arrays, c, count);
  }
}

void exchange(StreamView stream, const Tensor& a, const Tensor& b) {
  const std::size_t count = a.num_elements();
  const LaunchShape shape{.grid = blocks_for(count, kMapThreads), .block = kMapThreads};
  launch(stream, shape, exchange_kernel, count, a.data<float>(), b.data<float>());
}

}  // namespace slackline::cuda
