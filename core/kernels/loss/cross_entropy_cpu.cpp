#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "core/kernels/loss/cross_entropy.h"
#include "core/kernels/simd.h"
// After simd.h, which configures Highway.
#include <hwy/contrib/math/math-inl.h>

// Softmax and its gradient, one task a row of logits. A row is read three times, but only the
// first time from memory, 50257 floats fit the second-level cache; over ranks the third as well.
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

// Replaces the row by its exponentials, relative to the largest logit, and returns their sum. The
// library's exponential of NaN is 0, and its largest value may hide one.
float exponentiate(float* row, std::size_t V, float most) {
  Floats sum = simd::zero();
  simd::for_each_vector(V, [&](std::size_t i, auto part) {
    const Floats logit = load_or(row + i, -INFINITY, part);
    const Floats difference = hn::Sub(logit, simd::splat(most));
    const Floats e =
        hn::IfThenElse(hn::IsNaN(difference), difference, hn::Exp(simd::kFloats, difference));
    sum = hn::Add(sum, e);
    simd::store(e, row + i, part);
  });
  return simd::sum_lanes(sum);
}

// A row's statistics over all ranks. all[r * N] is rank r's.
LogitStatistics combine(const LogitStatistics* all, std::size_t N, std::size_t num_ranks) {
  LogitStatistics whole = all[0];
  for (std::size_t r = 1; r < num_ranks; ++r) {
    whole.most = std::max(whole.most, all[r * N].most);
    whole.target_logit += all[r * N].target_logit;
  }
  whole.sum = 0.0F;
  for (std::size_t r = 0; r < num_ranks; ++r) {
    whole.sum += all[r * N].sum * std::exp(all[r * N].most - whole.most);
  }
  return whole;
}

// The columns that are here of one row, and the target's among them.
struct Row {
  std::span<float> values;
  std::size_t target;  // values.size() where it is elsewhere
};

std::size_t distance_of(const Tensor& values, std::int64_t row) {
  return static_cast<std::size_t>(row == 0 ? values.dim(1) : row);
}

Row row_of(const Tensor& values,
           std::size_t distance,
           const Tensor& targets,
           std::int64_t first_token,
           std::size_t n) {
  const auto V = static_cast<std::size_t>(values.dim(1));
  const std::int64_t column = targets.data<std::int32_t>()[n] - first_token;
  const std::size_t target = column < 0 ? V : std::min(V, static_cast<std::size_t>(column));
  return {{values.data<float>() + n * distance, V}, target};
}

// The first op on one row.
LogitStatistics exponentiate(const Row& row) {
  const std::size_t V = row.values.size();
  const float most = largest(row.values.data(), V);
  const float target_logit = row.target < V ? row.values[row.target] : 0.0F;
  return {most, exponentiate(row.values.data(), V, most), target_logit};
}

float loss_of(const LogitStatistics& whole) {
  return std::log(whole.sum) + (whole.most - whole.target_logit);
}

// The second op on one row: scale * (probability - is_target). own_most is what the exponentials
// are relative to.
template <typename T>
void write_gradient(
    const Row& row, float own_most, const LogitStatistics& whole, float scale, T* to) {
  const float factor = scale * std::exp(own_most - whole.most) / whole.sum;
  const bool has_target = row.target < row.values.size();
  const float at_target = has_target ? row.values[row.target] * factor - scale : 0.0F;
  const float* from = row.values.data();
  simd::for_each_vector(row.values.size(), [&](std::size_t i, auto part) {
    simd::store(hn::Mul(simd::load(from + i, part), simd::splat(factor)), to + i, part);
  });
  if (has_target) {
    to[row.target] = static_cast<T>(at_target);
  }
}

}  // namespace

void softmax_statistics(StreamView stream, const SoftmaxStatistics& args) {
  auto* statistics = reinterpret_cast<LogitStatistics*>(args.statistics.data<float>());
  const auto N = static_cast<std::size_t>(args.logits.dim(0));
  const std::size_t distance = distance_of(args.logits, args.row);
  stream.pool().parallel_for(N, [&](std::size_t n, int) {
    statistics[n] = exponentiate(row_of(args.logits, distance, args.targets, args.first_token, n));
  });
}

template <typename T>
void softmax_loss(StreamView stream, const SoftmaxLoss& args) {
  const auto N = static_cast<std::size_t>(args.exponentials.dim(0));
  const std::size_t distance = distance_of(args.exponentials, args.row);
  const auto num_ranks = static_cast<std::size_t>(args.statistics.dim(0));
  const auto* all = reinterpret_cast<const LogitStatistics*>(args.statistics.data<float>());
  const LogitStatistics* own = all + static_cast<std::size_t>(args.rank) * N;
  stream.pool().parallel_for(N, [&](std::size_t n, int) {
    const LogitStatistics whole = combine(all + n, N, num_ranks);
    args.losses.data<float>()[n] = loss_of(whole);
    if (!args.d_logits.empty()) {
      const Row row = row_of(args.exponentials, distance, args.targets, args.first_token, n);
      T* to = args.d_logits.data<T>() + n * distance;
      write_gradient(row, own[n].most, whole, args.gradient_scale, to);
    }
  });
}

template <typename T>
void softmax_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args) {
  const auto N = static_cast<std::size_t>(args.logits.dim(0));
  const std::size_t distance = distance_of(args.logits, args.row);
  stream.pool().parallel_for(N, [&](std::size_t n, int) {
    const Row row = row_of(args.logits, distance, args.targets, 0, n);
    const LogitStatistics whole = exponentiate(row);
    args.losses.data<float>()[n] = loss_of(whole);
    if (!args.d_logits.empty()) {
      T* to = args.d_logits.data<T>() + n * distance;
      write_gradient(row, whole.most, whole, args.gradient_scale, to);
    }
  });
}

template void softmax_loss<float>(StreamView, const SoftmaxLoss&);
template void softmax_loss<BFloat16>(StreamView, const SoftmaxLoss&);
template void softmax_cross_entropy<float>(StreamView, const SoftmaxCrossEntropy&);
template void softmax_cross_entropy<BFloat16>(StreamView, const SoftmaxCrossEntropy&);

}  // namespace slackline::cpu
