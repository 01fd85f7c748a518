#include "core/cuda/map.h"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/dropout_factors.h"

// A thread takes neighbours whose number is a multiple of the four that one counter decides, so
// that nothing is drawn twice. Every sample begins with a thread of its own: where that is not
// aligned in memory, elements are moved one by one.
namespace slackline::cuda {

namespace {

constexpr std::int64_t kMostSamplesAtOnce = 65535;  // of a grid

template <typename X, typename T>
struct Elements {
  const X* x;
  const T* residual;  // where there is one
  T* out;
};

// x is elements [begin, end) of `count` samples put in a row.
struct Samples {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t per_sample;
  std::int64_t count;
};

// out = residual + x * factor, for pack `index` of n elements.
template <int n, bool has_residual, typename X, typename T>
__device__ void drop(const Elements<X, T>& elements, std::size_t index, const Floats<n>& factors) {
  Floats<n> out = load<n>(elements.x + index * n);
  Floats<n> residual{};
  if constexpr (has_residual) {
    residual = load<n>(elements.residual + index * n);
  }
#pragma unroll
  for (int i = 0; i < n; ++i) {
    out[i] = has_residual ? fmaf(out[i], factors[i], residual[i]) : out[i] * factors[i];
  }
  store<n>(pack_at<n>(elements.out, index), out);
}

template <int n, bool aligned, bool has_residual, typename X, typename T>
__global__ void __launch_bounds__(kMapThreads)
    dropout_kernel(Samples samples, DropoutFactors factors, Elements<X, T> elements) {
  const std::int64_t element = (std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x) * n;
  for (std::int64_t sample = blockIdx.y; sample < samples.count; sample += gridDim.y) {
    // The thread takes those of its elements that the sample has and that are there.
    const std::int64_t first = sample * samples.per_sample + element;
    const std::int64_t end = std::min(samples.end, (sample + 1) * samples.per_sample);
    if (first >= end || first + n <= samples.begin) {
      continue;
    }
    const Floats<n> drawn = factors.template draw<n>(sample, element);
    if (aligned && first >= samples.begin && first + n <= end) {
      const auto place = static_cast<std::size_t>(first - samples.begin);
      drop<n, has_residual>(elements, place / n, drawn);
      continue;
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if (first + i >= samples.begin && first + i < end) {
        const auto place = static_cast<std::size_t>(first + i - samples.begin);
        drop<1, has_residual>(elements, place, Floats<1>{drawn[i]});
      }
    }
  }
}

template <typename X, typename T>
void add_all(StreamView stream, const DropoutAdd& args, const Elements<X, T>& elements) {
  const std::size_t count = args.x.num_elements();
  if (elements.residual == nullptr) {
    map_elements(stream, Same{}, count, elements.out, elements.x);
  } else {
    map_elements(stream, Sum{}, count, elements.out, elements.residual, elements.x);
  }
}

template <bool has_residual, typename X, typename T>
void drop_all(StreamView stream, const DropoutAdd& args, const Elements<X, T>& elements) {
  const auto count = static_cast<std::int64_t>(args.x.num_elements());
  const std::int64_t per_row = count / args.x.dim(0);
  const std::int64_t per_sample = args.rows_per_sample * per_row;
  const std::int64_t begin = args.first_row % args.rows_per_sample * per_row;
  const Samples samples{.begin = begin,
                        .end = begin + count,
                        .per_sample = per_sample,
                        .count = (begin + count + per_sample - 1) / per_sample};
  const DropoutFactors factors = dropout_factors(args);
  constexpr int kPack = kPackSize<X, T>;
  const bool aligned = per_sample % kPack == 0 && begin % kPack == 0 &&
                       are_aligned(elements.x, elements.residual, elements.out);
  const LaunchShape shape{
      .grid = dim3(blocks_for(static_cast<std::size_t>(per_sample), kMapThreads * kPack),
                   static_cast<unsigned>(std::min(samples.count, kMostSamplesAtOnce))),
      .block = kMapThreads,
  };
  const auto kernel = aligned ? dropout_kernel<kPack, true, has_residual, X, T>
                              : dropout_kernel<kPack, false, has_residual, X, T>;
  launch(stream, shape, kernel, samples, factors, elements);
}

template <typename X, typename T>
void dropout_of(StreamView stream, const DropoutAdd& args) {
  const Elements<X, T> elements{args.x.data<X>(),
                                args.residual.empty() ? nullptr : args.residual.data<T>(),
                                args.out.data<T>()};
  if (args.x.num_elements() == 0) {
    return;
  }
  if (args.key.probability == 0.0F) {
    add_all(stream, args, elements);
  } else if (args.residual.empty()) {
    drop_all<false>(stream, args, elements);
  } else {
    drop_all<true>(stream, args, elements);
  }
}

}  // namespace

template <typename T>
void dropout_add(StreamView stream, const DropoutAdd& args) {
  args.x.dtype() == DType::f32 ? dropout_of<float, T>(stream, args)
                               : dropout_of<T, T>(stream, args);
}

template void dropout_add<float>(StreamView, const DropoutAdd&);
template void dropout_add<BFloat16>(StreamView, const DropoutAdd&);

}  // namespace slackline::cuda
