#include <cmath>

#include "core/kernels/adamw.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"

// Bound by memory: four streams in, three out (and a fourth with a bf16 copy), 28 bytes a
// parameter. One division and one square root per element hide behind them.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;
using simd::splat;

constexpr std::size_t kElementsPerTask = 65536;  // 256 KiB of each stream

// The update with everything that is the same for all elements worked out in double:
//   w -= rate * m / (sqrt(v) * root_correction + eps) + decay * w
// `decay` is kept apart from w, since 1 - lr * weight_decay would lose its digits in a float.
struct Coefficients {
  explicit Coefficients(const AdamwStep& step)
      : gradient_scale(static_cast<float>(step.gradient_scale)),
        beta1(static_cast<float>(step.beta1)),
        beta2(static_cast<float>(step.beta2)),
        one_minus_beta1(static_cast<float>(1.0 - step.beta1)),
        one_minus_beta2(static_cast<float>(1.0 - step.beta2)),
        rate(static_cast<float>(step.lr / correction(step.beta1, step.step))),
        root_correction(static_cast<float>(1.0 / std::sqrt(correction(step.beta2, step.step)))),
        eps(static_cast<float>(step.eps)),
        decay(static_cast<float>(step.lr * step.weight_decay)) {}

  static double correction(double beta, std::int64_t step) {
    return 1.0 - std::pow(beta, static_cast<double>(step));
  }

  float gradient_scale;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float rate;
  float root_correction;
  float eps;
  float decay;
};

struct Arrays {
  float* weight;
  const float* gradient;
  float* m;
  float* v;
  BFloat16* weight_copy;  // null: none
};

void update_vector(const Arrays& arrays, const Coefficients& c, std::size_t i, auto part) {
  const Floats g = hn::Mul(simd::load(arrays.gradient + i, part), splat(c.gradient_scale));
  const Floats m = hn::MulAdd(
      splat(c.beta1), simd::load(arrays.m + i, part), hn::Mul(splat(c.one_minus_beta1), g));
  const Floats v = hn::MulAdd(splat(c.beta2),
                              simd::load(arrays.v + i, part),
                              hn::Mul(hn::Mul(splat(c.one_minus_beta2), g), g));
  const Floats denominator = hn::MulAdd(hn::Sqrt(v), splat(c.root_correction), splat(c.eps));
  const Floats old = simd::load(arrays.weight + i, part);
  const Floats change =
      hn::MulAdd(splat(c.decay), old, hn::Div(hn::Mul(splat(c.rate), m), denominator));
  const Floats weight = hn::Sub(old, change);
  simd::store(m, arrays.m + i, part);
  simd::store(v, arrays.v + i, part);
  simd::store(weight, arrays.weight + i, part);
  if (arrays.weight_copy != nullptr) {
    simd::store(weight, arrays.weight_copy + i, part);
  }
}

}  // namespace

void adamw(StreamView stream, const AdamwTensors& tensors, const AdamwStep& step) {
  const Coefficients coefficients(step);
  const Arrays arrays{tensors.weight.data<float>(),
                      tensors.gradient.data<float>(),
                      tensors.m.data<float>(),
                      tensors.v.data<float>(),
                      tensors.weight_copy.empty() ? nullptr : tensors.weight_copy.data<BFloat16>()};
  parallel_ranges(stream,
                  tensors.weight.num_elements(),
                  kElementsPerTask,
                  [&](std::size_t begin, std::size_t end) {
                    simd::for_each_vector(end - begin, [&](std::size_t i, auto part) {
                      update_vector(arrays, coefficients, begin + i, part);
                    });
                  });
}

}  // namespace slackline::cpu
