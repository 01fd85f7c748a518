#include <type_traits>

#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"
#include "core/kernels/update/adamw_coefficients.h"

// Bound by memory: four streams in, three out, 28 bytes a parameter, and 2 more for a bf16 copy.
// Two things keep it there. Software prefetch: the division and the square root fill the window
// that would let the processor run ahead to the next lines (5-15 % of the time without). And
// non-temporal stores of the copy, whose lines nobody reads before: ordinary stores would fetch
// them first (10-20 %). The other outputs are inputs too, so their lines are there already.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;
using simd::splat;

constexpr std::size_t kElementsPerTask = 65536;   // 256 KiB of each stream
constexpr std::size_t kPrefetchedElements = 512;  // 2 KiB ahead, within the page mostly

// Where the bf16 copy goes, if there is one: through the caches, or past them (aligned only).
enum class CopyStore { none, cached, non_temporal };

void prefetch(const AdamwArrays& arrays, std::size_t i) {
  hwy::Prefetch(arrays.weight + i);
  hwy::Prefetch(arrays.gradient + i);
  hwy::Prefetch(arrays.m + i);
  hwy::Prefetch(arrays.v + i);
}

// Tails are stored the ordinary way: they are a fraction of a line.
template <CopyStore store>
void store_copy(Floats weight, const AdamwArrays& arrays, std::size_t i, auto part) {
  if constexpr (store == CopyStore::non_temporal && std::is_same_v<decltype(part), simd::Full>) {
    hn::Stream(simd::narrow(weight), simd::kHalfWords, &arrays.weight_copy[i].bits);
  } else if constexpr (store != CopyStore::none) {
    simd::store(weight, arrays.weight_copy + i, part);
  }
}

template <CopyStore store>
void update_vector(const AdamwArrays& arrays,
                   const AdamwCoefficients& c,
                   std::size_t i,
                   auto part) {
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
  store_copy<store>(weight, arrays, i, part);
}

template <CopyStore store>
void update(StreamView stream,
            const AdamwArrays& arrays,
            const AdamwCoefficients& coefficients,
            std::size_t count) {
  parallel_ranges(stream, count, kElementsPerTask, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector(end - begin, [&](std::size_t offset, auto part) {
      const std::size_t i = begin + offset;
      prefetch(arrays, i + kPrefetchedElements);  // a hint, harmless beyond the end
      update_vector<store>(arrays, coefficients, i, part);
    });
    hwy::FlushStream();  // other threads see the copy once the loop has ended
  });
}

bool can_stream(const BFloat16* copy) {
  return reinterpret_cast<std::uintptr_t>(copy) % (simd::kLanes * sizeof(BFloat16)) == 0;
}

void update_one(StreamView stream, const AdamwTensors& tensors, const AdamwStep& step) {
  const AdamwCoefficients coefficients(step);
  const AdamwArrays arrays = arrays_of(tensors);
  const std::size_t count = tensors.weight.num_elements();
  if (arrays.weight_copy == nullptr) {
    update<CopyStore::none>(stream, arrays, coefficients, count);
  } else if (can_stream(arrays.weight_copy)) {
    update<CopyStore::non_temporal>(stream, arrays, coefficients, count);
  } else {
    update<CopyStore::cached>(stream, arrays, coefficients, count);
  }
}

}  // namespace

void adamw(StreamView stream, std::span<const AdamwUpdate> updates) {
  for (const auto& [tensors, step] : updates) {
    update_one(stream, tensors, step);
  }
}

}  // namespace slackline::cpu
