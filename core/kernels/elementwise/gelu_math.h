#pragma once

#include "core/kernels/simd.h"
// After simd.h, which configures Highway.
#include <hwy/contrib/math/math-inl.h>

// The tanh form of GELU in vectors, for the op itself and for epilogues of matrix products.
//
// 0.5 (1 + tanh u) = sigmoid(2 u), so with u = sqrt(2 / pi) (x + 0.044715 x^3)
//   gelu(x)  = x s,                       s = 1 / (1 + e), e = exp(-2 u)
//   gelu'(x) = s + x s (1 - s) 2 u',      1 - s = e s
// which loses nothing to cancellation for negative x. Relative error below 1e-6 for x > -3; in the
// far negative tail it grows with the rounding of u, where gelu itself is below 4e-3.
// NaN stays NaN.
namespace slackline::simd {

namespace internal {

inline constexpr float kGeluTwoRootTwoOverPi = 1.5957691216057308F;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715F;
inline constexpr float kGeluMaxExponent = 88.0F;  // e stays finite; s is below 1e-38 there

struct GeluSigmoid {
  Floats s;          // sigmoid(2 u)
  Floats e_times_s;  // 1 - s
};

[[nodiscard]] inline GeluSigmoid gelu_sigmoid(Floats x, Floats x_squared) {
  const Floats inner = hn::MulAdd(splat(kGeluCubic), x_squared, splat(1.0F));
  const Floats exponent = hn::Mul(hn::Mul(splat(-kGeluTwoRootTwoOverPi), x), inner);
  const Floats e = hn::Exp(kFloats, hn::Min(exponent, splat(kGeluMaxExponent)));
  const Floats s = hn::Div(splat(1.0F), hn::Add(splat(1.0F), e));
  return {s, hn::Mul(e, s)};
}

}  // namespace internal

[[nodiscard]] inline Floats gelu(Floats x) {
  return hn::Mul(x, internal::gelu_sigmoid(x, hn::Mul(x, x)).s);
}

[[nodiscard]] inline Floats gelu_derivative(Floats x) {
  const Floats x_squared = hn::Mul(x, x);
  const internal::GeluSigmoid sigmoid = internal::gelu_sigmoid(x, x_squared);
  // 2 u' = 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
  const Floats slope =
      hn::Mul(splat(internal::kGeluTwoRootTwoOverPi),
              hn::MulAdd(splat(3.0F * internal::kGeluCubic), x_squared, splat(1.0F)));
  return hn::MulAdd(hn::Mul(x, sigmoid.s), hn::Mul(sigmoid.e_times_s, slope), sigmoid.s);
}

}  // namespace slackline::simd
