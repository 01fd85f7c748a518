#include <algorithm>
#include <array>

#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/philox_simd.h"
#include "core/kernels/simd.h"

namespace slackline::cpu {

namespace {

constexpr std::size_t kFactorsAtOnce = 512;  // 2 KiB on the stack

// The memory of a range of elements.
template <typename X, typename T>
struct Elements {
  const X* x;
  const T* residual;  // null: none
  T* out;

  [[nodiscard]] Elements from(std::size_t offset) const {
    return {x + offset, residual == nullptr ? nullptr : residual + offset, out + offset};
  }
};

// out = residual + x * factor
template <typename X, typename T>
void scale_and_add(const Elements<X, T>& elements, std::span<const float> factors) {
  simd::for_each_vector(factors.size(), [&](std::size_t i, auto part) {
    const simd::Floats x = simd::load(elements.x + i, part);
    const simd::Floats factor = simd::load(factors.data() + i, part);
    const simd::Floats value =
        elements.residual == nullptr
            ? simd::hn::Mul(x, factor)
            : simd::hn::MulAdd(x, factor, simd::load(elements.residual + i, part));
    simd::store(value, elements.out + i, part);
  });
}

// `count` elements of one sample, the first of which is its element `first`; `elements` begins
// there.
template <typename X, typename T>
void drop_range(const Elements<X, T>& elements,
                const simd::DropoutFactors& sample,
                std::size_t first,
                std::size_t count) {
  alignas(64) std::array<float, kFactorsAtOnce> factors{};
  for (std::size_t i = 0; i < count; i += kFactorsAtOnce) {
    const std::span<float> drawn(factors.data(), std::min(kFactorsAtOnce, count - i));
    sample.draw(first + i, drawn);
    scale_and_add(elements.from(i), drawn);
  }
}

// Without dropout: out = residual + x.
template <typename X, typename T>
void add_range(const Elements<X, T>& elements, std::size_t begin, std::size_t end) {
  alignas(64) std::array<float, kFactorsAtOnce> ones{};
  ones.fill(1.0F);
  for (std::size_t i = begin; i < end; i += kFactorsAtOnce) {
    scale_and_add(elements.from(i),
                  std::span<const float>(ones.data(), std::min(kFactorsAtOnce, end - i)));
  }
}

template <typename X, typename T>
void add_all(StreamView stream, const DropoutAdd& args) {
  const Elements<X, T> all{args.x.data<X>(),
                           args.residual.empty() ? nullptr : args.residual.data<T>(),
                           args.out.data<T>()};
  const std::size_t count = args.x.num_elements();
  if (args.key.probability == 0.0F || count == 0) {
    parallel_ranges(stream, count, kElementsPerTask, [&](std::size_t begin, std::size_t end) {
      add_range(all, begin, end);
    });
    return;
  }
  const std::size_t per_row = count / static_cast<std::size_t>(args.x.dim(0));
  const auto rows_per_sample = static_cast<std::size_t>(args.rows_per_sample);
  const auto first_row = static_cast<std::size_t>(args.first_row);
  const std::size_t per_sample = rows_per_sample * per_row;
  const std::uint64_t first_sample = args.key.first_sample + first_row / rows_per_sample;
  // x is elements [skipped, skipped + count) of its samples put in a row. Tasks cut whole samples,
  // and leave out what is not there.
  const std::size_t skipped = first_row % rows_per_sample * per_row;
  const std::size_t num_samples = (skipped + count + per_sample - 1) / per_sample;
  const std::size_t tasks_per_sample = (per_sample + kElementsPerTask - 1) / kElementsPerTask;
  const auto body = [&](std::size_t task, int /*thread*/) {
    const std::size_t sample = task / tasks_per_sample;
    const std::size_t start = sample * per_sample;
    const std::size_t at = start + task % tasks_per_sample * kElementsPerTask;
    const std::size_t begin = std::max(skipped, at);
    const std::size_t end = std::min({skipped + count, start + per_sample, at + kElementsPerTask});
    if (begin < end) {
      const simd::DropoutFactors factors(args.key, first_sample + sample);
      drop_range(all.from(begin - skipped), factors, begin - start, end - begin);
    }
  };
  stream.pool().parallel_for(num_samples * tasks_per_sample, body);
}

}  // namespace

template <typename T>
void dropout_add(StreamView stream, const DropoutAdd& args) {
  args.x.dtype() == DType::f32 ? add_all<float, T>(stream, args) : add_all<T, T>(stream, args);
}

template void dropout_add<float>(StreamView, const DropoutAdd&);
template void dropout_add<BFloat16>(StreamView, const DropoutAdd&);

}  // namespace slackline::cpu
