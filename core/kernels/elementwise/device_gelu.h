#pragma once

#include "core/cuda/device.h"

// The tanh form of GELU in kernels, as core/kernels/elementwise/gelu_math.h has it in vectors.
namespace slackline::cuda {

struct GeluSigmoid {
  float s;          // sigmoid(2 u)
  float e_times_s;  // 1 - s
};

inline constexpr float kGeluTwoRootTwoOverPi = 1.5957691216057308F;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715F;

__device__ inline GeluSigmoid gelu_sigmoid(float x) {
  constexpr float kMaxExponent = 88.0F;  // e stays finite; s is below 1e-38 there
  const float exponent = -kGeluTwoRootTwoOverPi * x * fmaf(kGeluCubic, x * x, 1.0F);
  // Not fminf, which would make a number of a NaN.
  const float e = expf(exponent > kMaxExponent ? kMaxExponent : exponent);
  const float s = 1.0F / (1.0F + e);
  return {s, e * s};
}

__device__ inline float gelu(float x) {
  return x * gelu_sigmoid(x).s;
}

__device__ inline float gelu_derivative(float x) {
  const GeluSigmoid sigmoid = gelu_sigmoid(x);
  const float slope = kGeluTwoRootTwoOverPi * fmaf(3.0F * kGeluCubic, x * x, 1.0F);
  return fmaf(x * sigmoid.s, sigmoid.e_times_s * slope, sigmoid.s);
}

}  // namespace slackline::cuda
