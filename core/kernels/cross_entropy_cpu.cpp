#include <cmath>
#include <cstddef>

#include "core/kernels/cross_entropy.h"
#include "core/kernels/simd.h"
// After simd.h, which configures Highway.
#include <hwy/contrib/math/math-inl.h>

// Softmax and its gradient, one task a row of logits. A row is read three times, but only the
// first time from memory: 50257 floats fit the second-level cache.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

Floats load_or(const float* from, float /*missing*/, simd::Full part) {
  return simd::load(from, part);
}

// Lanes beyond the row get a value that does not count.
Floats load_or(const float* from, float missing, simd::First part) {
  const auto exists = hn::FirstN(simd::kFloats, part.count);
  return hn::IfThenElse(exists, simd::load(from, part), simd::splat(missing));
}

float largest(const float* row, std::size_t V) {
  Floats most = simd::splat(-INFINITY);
  simd::for_each_vector(V, [&](std::size_t i, auto part) {
    most = hn::Max(most, load_or(row + i, -INFINITY, part));
  });
  return simd::max_lanes(most);
}

// Replaces the row by its exponentials, relative to the largest logit, and returns their sum.
float exponentiate(float* row, std::size_t V, float most) {
  Floats sum = simd::zero();
  simd::for_each_vector(V, [&](std::size_t i, auto part) {
    const Floats logit = load_or(row + i, -INFINITY, part);
    const Floats e = hn::Exp(simd::kFloats, hn::Sub(logit, simd::splat(most)));
    sum = hn::Add(sum, e);
    simd::store(e, row + i, part);
  });
  return simd::sum_lanes(sum);
}

// Scales the exponentials to the gradient of the loss: scale * (probability - is_target).
template <typename T>
void write_gradient(
    const float* row, std::size_t V, std::size_t target, float sum, float scale, T* to) {
  const Floats factor = simd::splat(scale / sum);
  const float at_target = row[target] * (scale / sum) - scale;
  simd::for_each_vector(V, [&](std::size_t i, auto part) {
    simd::store(hn::Mul(simd::load(row + i, part), factor), to + i, part);
  });
  to[target] = static_cast<T>(at_target);
}

}  // namespace

// logits (N, V) f32 are used up. d_logits, where given, is of type T and may be the same memory.
template <typename T>
void softmax_loss(StreamView stream,
                  const Tensor& logits,
                  const Tensor& targets,
                  const Tensor& losses,
                  const Tensor& d_logits,
                  float gradient_scale) {
  const auto V = static_cast<std::size_t>(logits.dim(1));
  stream.pool().parallel_for(static_cast<std::size_t>(logits.dim(0)), [&](std::size_t n, int) {
    float* row = logits.data<float>() + n * V;
    const auto target = static_cast<std::size_t>(targets.data<std::int32_t>()[n]);
    const float most = largest(row, V);
    const float target_logit = row[target];
    const float sum = exponentiate(row, V, most);
    losses.data<float>()[n] = std::log(sum) + (most - target_logit);
    if (!d_logits.empty()) {
      write_gradient(row, V, target, sum, gradient_scale, d_logits.data<T>() + n * V);
    }
  });
}

template void softmax_loss<float>(
    StreamView, const Tensor&, const Tensor&, const Tensor&, const Tensor&, float);
template void softmax_loss<BFloat16>(
    StreamView, const Tensor&, const Tensor&, const Tensor&, const Tensor&, float);

}  // namespace slackline::cpu
