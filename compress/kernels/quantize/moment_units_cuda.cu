#include "compress/kernels/quantize/moment_units.h"
#include "compress/kernels/quantize/quantize_scales.h"
#include "core/cuda/map.h"

namespace slackline::cuda {

namespace {

struct Quotient {
  float floor;

  __device__ float operator()(float value, float moment) const {
    return __fdiv_rn(value, sqrtf(moment) + floor);
  }
};

template <Update update>
struct Product {
  float floor;

  // `before` is what the result takes the place of.
  __device__ float operator()(float before, float value, float moment) const {
    return updated<update>(before, value, sqrtf(moment) + floor);
  }
};

}  // namespace

void divide_by_units(StreamView stream,
                     const Tensor& x,
                     const MomentUnits& units,
                     const Tensor& to) {
  map_elements(stream,
               Quotient{units.floor},
               x.num_elements(),
               to.data<float>(),
               static_cast<const float*>(x.data<float>()),
               static_cast<const float*>(units.moments.data<float>()));
}

void multiply_by_units(StreamView stream,
                       const Tensor& y,
                       const MomentUnits& units,
                       const Tensor& out,
                       Update update) {
  auto* to = out.data<float>();
  with_update(update, [&](auto constant) {
    map_elements(stream,
                 Product<decltype(constant)::value>{units.floor},
                 y.num_elements(),
                 to,
                 static_cast<const float*>(to),
                 static_cast<const float*>(y.data<float>()),
                 static_cast<const float*>(units.moments.data<float>()));
  });
}

}  // namespace slackline::cuda
