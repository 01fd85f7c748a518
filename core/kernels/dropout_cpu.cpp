#include <array>

#include "core/kernels/dropout.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/philox_simd.h"
#include "core/kernels/simd.h"

namespace slackline::cpu {

namespace {

constexpr std::size_t kFactorsAtOnce = 512;  // 2 KiB on the stack

// The memory of one sample, or of a range of it.
template <typename T>
struct Elements {
  const T* x;
  const T* residual;  // null: none
  T* out;

  [[nodiscard]] Elements from(std::size_t offset) const {
    return {x + offset, residual == nullptr ? nullptr : residual + offset, out + offset};
  }
};

// out = residual + x * factor
template <typename T>
void scale_and_add(const Elements<T>& elements, std::span<const float> factors) {
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

// Elements [begin, end) of one sample; `elements` points at its element 0.
template <typename T>
void drop_range(const Elements<T>& elements,
                const simd::DropoutFactors& sample,
                std::size_t begin,
                std::size_t end) {
  alignas(64) std::array<float, kFactorsAtOnce> factors{};
  for (std::size_t i = begin; i < end; i += kFactorsAtOnce) {
    const std::span<float> drawn(factors.data(), std::min(kFactorsAtOnce, end - i));
    sample.draw(i, drawn);
    scale_and_add(elements.from(i), drawn);
  }
}

// Without dropout: out = residual + x.
template <typename T>
void add_range(const Elements<T>& elements, std::size_t begin, std::size_t end) {
  alignas(64) std::array<float, kFactorsAtOnce> ones{};
  ones.fill(1.0F);
  for (std::size_t i = begin; i < end; i += kFactorsAtOnce) {
    scale_and_add(elements.from(i),
                  std::span<const float>(ones.data(), std::min(kFactorsAtOnce, end - i)));
  }
}

}  // namespace

template <typename T>
void dropout_add(StreamView stream, const DropoutAdd& args) {
  const Elements<T> all{args.x.data<T>(),
                        args.residual.empty() ? nullptr : args.residual.data<T>(),
                        args.out.data<T>()};
  const std::size_t count = args.x.num_elements();
  if (args.key.probability == 0.0F || count == 0) {
    parallel_ranges(stream, count, kElementsPerTask, [&](std::size_t begin, std::size_t end) {
      add_range(all, begin, end);
    });
    return;
  }
  const auto num_samples = static_cast<std::size_t>(args.x.dim(0));
  const std::size_t per_sample = count / num_samples;
  const std::size_t tasks_per_sample = (per_sample + kElementsPerTask - 1) / kElementsPerTask;
  const auto body = [&](std::size_t task, int /*thread*/) {
    const std::size_t sample = task / tasks_per_sample;
    const std::size_t begin = task % tasks_per_sample * kElementsPerTask;
    const simd::DropoutFactors factors(args.key, args.key.first_sample + sample);
    drop_range(all.from(sample * per_sample),
               factors,
               begin,
               std::min(per_sample, begin + kElementsPerTask));
  };
  stream.pool().parallel_for(num_samples * tasks_per_sample, body);
}

template void dropout_add<float>(StreamView, const DropoutAdd&);
template void dropout_add<BFloat16>(StreamView, const DropoutAdd&);

}  // namespace slackline::cpu
