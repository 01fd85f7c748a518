#include "tools/bench/fma_peak.h"

#include <chrono>
#include <vector>

#include "core/kernels/simd.h"

namespace slackline {

namespace {

using simd::Floats;

// Independent chains hide the latency of an FMA (4 cycles, two a cycle) and fit 16 registers.
constexpr std::size_t kChains = 12;
constexpr std::size_t kSteps = 1'500'000;

float run_chains() {
  const Floats factor = simd::splat(0.999F);
  const Floats term = simd::splat(0.001F);
  Floats chains[kChains];
  for (std::size_t i = 0; i < kChains; ++i) {
    chains[i] = simd::splat(static_cast<float>(i));
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (Floats& chain : chains) {
      chain = simd::hn::MulAdd(chain, factor, term);
    }
  }
  Floats sum = simd::zero();
  for (const Floats& chain : chains) {
    sum = simd::hn::Add(sum, chain);
  }
  return simd::sum_lanes(sum);
}

}  // namespace

double fma_peak_flops(ThreadPool& pool) {
  const auto threads = static_cast<std::size_t>(pool.num_threads());
  std::vector<float> results(threads);  // used, so that the work is not optimized away
  const auto begin = std::chrono::steady_clock::now();
  pool.parallel_for(threads, [&](std::size_t task, int) { results[task] = run_chains(); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const double flops = 2.0 * static_cast<double>(kChains * kSteps * simd::kLanes * threads);
  return results.back() > 0.0F ? flops / seconds.count() : 0.0;
}

}  // namespace slackline
