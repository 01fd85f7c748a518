#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/device.h"
#include "core/cuda/launch.h"

// out[i] = f(a[i], b[i], ...): the form of every op that works element by element.
namespace slackline::cuda {

inline constexpr unsigned kMapThreads = 256;

// True where every pointer may be moved in packs of 16 bytes.
template <typename... T>
[[nodiscard]] bool are_aligned(const T*... pointers) {
  constexpr std::uintptr_t kBytes = 16;
  return ((reinterpret_cast<std::uintptr_t>(pointers) % kBytes == 0) && ...);
}

// Maps of several ops.
struct Same {
  __device__ float operator()(float value) const { return value; }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <int n, typename Map, typename... In>
__device__ Floats<n> mapped(const Map& map, const In&... in) {
  Floats<n> out;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    out[i] = map(in[i]...);
  }
  return out;
}

// One thread for n neighbours. `out` may be any of `in`.
template <int n, typename Map, typename Out, typename... In>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(Map map, std::size_t count, Out* out, const In*... in) {
  const std::size_t first = (std::size_t{blockIdx.x} * kMapThreads + threadIdx.x) * n;
  if (first + n <= count) {
    store<n>(out + first, mapped<n>(map, load<n>(in + first)...));
  } else if (first < count) {
    const int rest = static_cast<int>(count - first);
    store_part<n>(out + first, mapped<n>(map, load_part<n>(in + first, rest)...), rest);
  }
}

// `map` is a struct with `__device__ float operator()(float...) const`.
template <typename Map, typename Out, typename... In>
void map_elements(StreamView stream, const Map& map, std::size_t count, Out* out, const In*... in) {
  constexpr int kPack = kPackSize<Out, In...>;
  if (are_aligned(out, in...)) {
    const LaunchShape shape{.grid = blocks_for(count, std::size_t{kMapThreads} * kPack),
                            .block = kMapThreads};
    launch(stream, shape, map_kernel<kPack, Map, Out, In...>, map, count, out, in...);
  } else {
    const LaunchShape shape{.grid = blocks_for(count, kMapThreads), .block = kMapThreads};
    launch(stream, shape, map_kernel<1, Map, Out, In...>, map, count, out, in...);
  }
}

}  // namespace slackline::cuda
