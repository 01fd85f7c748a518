#include "compress/kernels/quantize/moment_units.h"
#include "compress/kernels/quantize/quantize_simd.h"
#include "core/kernels/for_each_element.h"

namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

}  // namespace

void divide_by_units(StreamView stream,
                     const Tensor& x,
                     const MomentUnits& units,
                     const Tensor& to) {
  const float* values = x.data<float>();
  const float* moments = units.moments.data<float>();
  const Floats floor = simd::splat(units.floor);
  float* quotients = to.data<float>();
  simd::for_each_element(stream, x.num_elements(), [=](std::size_t i, auto part) {
    const Floats unit = hn::Add(hn::Sqrt(simd::load(moments + i, part)), floor);
    simd::store(hn::Div(simd::load(values + i, part), unit), quotients + i, part);
  });
}

void multiply_by_units(StreamView stream,
                       const Tensor& y,
                       const MomentUnits& units,
                       const Tensor& out,
                       Update update) {
  const float* values = y.data<float>();
  const float* moments = units.moments.data<float>();
  const Floats floor = simd::splat(units.floor);
  float* to = out.data<float>();
  with_update(update, [&](auto constant) {
    simd::for_each_element(stream, y.num_elements(), [=](std::size_t i, auto part) {
      const Floats unit = hn::Add(hn::Sqrt(simd::load(moments + i, part)), floor);
      simd::store_product<decltype(constant)::value>(
          simd::load(values + i, part), unit, to + i, part);
    });
  });
}

}  // namespace slackline::cpu
