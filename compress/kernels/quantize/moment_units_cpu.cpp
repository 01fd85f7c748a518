#include "compress/kernels/quantize/moment_units.h"
#include "core/kernels/for_each_element.h"

namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

template <Update update>
void multiply(StreamView stream, const Tensor& y, const MomentUnits& units, const Tensor& out) {
  const float* values = y.data<float>();
  const float* moments = units.moments.data<float>();
  const Floats floor = simd::splat(units.floor);
  float* to = out.data<float>();
  simd::for_each_element(stream, y.num_elements(), [=](std::size_t i, auto part) {
    const Floats unit = hn::Add(hn::Sqrt(simd::load(moments + i, part)), floor);
    const Floats value = simd::load(values + i, part);
    if constexpr (update == Update::write) {
      simd::store(hn::Mul(value, unit), to + i, part);
    } else if constexpr (update == Update::add) {
      simd::store(hn::MulAdd(value, unit, simd::load(to + i, part)), to + i, part);
    } else {
      simd::store(hn::NegMulAdd(value, unit, simd::load(to + i, part)), to + i, part);
    }
  });
}

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
  switch (update) {
    case Update::write:
      return multiply<Update::write>(stream, y, units, out);
    case Update::add:
      return multiply<Update::add>(stream, y, units, out);
    case Update::subtract:
      return multiply<Update::subtract>(stream, y, units, out);
  }
}

}  // namespace slackline::cpu
