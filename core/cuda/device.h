#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

#include "core/tensor/device_fault.h"
#include "core/tensor/dtype.h"

// What kernels share. Functions that the host calls as well are constexpr.
namespace slackline::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

// A number that a function can take as an argument and use as a template argument.
template <int value>
using Constant = std::integral_constant<int, value>;

// Elements that a thread moves at once: 16 bytes of the wider of the types.
template <typename... T>
inline constexpr int kPackSize = 16 / static_cast<int>(std::max({sizeof(T)...}));

// `n` neighbours in memory, moved in one access where that is 16 bytes or less.
template <typename T, int n>
struct alignas(n * sizeof(T)) Pack {
  T elements[n];
};

__device__ inline float to_float(float value) {
  return value;
}

__device__ inline float to_float(BFloat16 value) {
  return static_cast<float>(value);
}

// Rounds to nearest even.
template <typename T>
__device__ T from_float(float value) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, BFloat16>) {
    return std::bit_cast<BFloat16>(__float2bfloat16_rn(value));  // one instruction
  }
#endif
  return T(value);
}

template <int n>
struct Floats {
  float values[n];

  __device__ float& operator[](int i) { return values[i]; }

  __device__ const float& operator[](int i) const { return values[i]; }
};

// `n` neighbours as floats. REQUIRES: from is aligned to n elements.
template <int n, typename T>
__device__ Floats<n> load(const T* from) {
  constexpr int kPiece = n * sizeof(T) > 16 ? 16 / static_cast<int>(sizeof(T)) : n;
  Floats<n> floats;
#pragma unroll
  for (int first = 0; first < n; first += kPiece) {
    const auto pack = *reinterpret_cast<const Pack<T, kPiece>*>(from + first);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      floats[first + i] = to_float(pack.elements[i]);
    }
  }
  return floats;
}

template <int n, typename T>
__device__ void store(T* to, const Floats<n>& floats) {
  constexpr int kPiece = n * sizeof(T) > 16 ? 16 / static_cast<int>(sizeof(T)) : n;
#pragma unroll
  for (int first = 0; first < n; first += kPiece) {
    Pack<T, kPiece> pack;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      pack.elements[i] = from_float<T>(floats[first + i]);
    }
    *reinterpret_cast<Pack<T, kPiece>*>(to + first) = pack;
  }
}

// Pack `index` of n neighbours of those that begin at `first`, which is aligned. Addresses that the
// compiler cannot see to be aligned otherwise cost it the wide store.
template <int n, typename T>
__device__ T* pack_at(T* first, std::size_t index) {
  return reinterpret_cast<T*>(reinterpret_cast<Pack<T, n>*>(first) + index);
}

// The first `count` of n neighbours; the others are `rest`. Any alignment.
template <int n, typename T>
__device__ Floats<n> load_part(const T* from, int count, float rest = 0.0F) {
  Floats<n> floats;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    floats[i] = i < count ? to_float(from[i]) : rest;
  }
  return floats;
}

template <int n, typename T>
__device__ void store_part(T* to, const Floats<n>& floats, int count) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    if (i < count) {
      to[i] = from_float<T>(floats[i]);
    }
  }
}

// Every lane gets the same bits: sums of pairs are the same whichever lane adds them.
template <typename T>
__device__ T warp_sum(T value) {
  for (unsigned lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, static_cast<int>(lanes));
  }
  return value;
}

__device__ inline float warp_max(float value) {
  for (unsigned lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, static_cast<int>(lanes)));
  }
  return value;
}

// Sums over the lanes up to this one, its own value included.
template <typename T>
__device__ T warp_sum_so_far(T value) {
  for (unsigned lanes = 1; lanes < kWarp; lanes *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, lanes);
    value += threadIdx.x % kWarp >= lanes ? before : T{0};
  }
  return value;
}

// Sums over the threads of a block (x only, whole warps); all get the sum. `scratch`: a float of
// shared memory for each warp. Begins and ends with a barrier where there is more than one warp.
__device__ inline float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  const unsigned num_warps = blockDim.x / kWarp;
  if (num_warps == 1) {
    return value;
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) {
    scratch[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  float sum = 0.0F;
  for (unsigned warp = 0; warp < num_warps; ++warp) {
    sum += scratch[warp];
  }
  return sum;
}

__device__ inline float block_max(float value, float* scratch) {
  value = warp_max(value);
  const unsigned num_warps = blockDim.x / kWarp;
  if (num_warps == 1) {
    return value;
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) {
    scratch[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  value = scratch[0];
  for (unsigned warp = 1; warp < num_warps; ++warp) {
    value = fmaxf(value, scratch[warp]);
  }
  return value;
}

// Leaves a fault where the host looks for a stream's first one, unless one is there already.
template <int n>
__device__ void tell_fault(DeviceFault& first,
                           void (*raise)(const DeviceFault& fault),
                           const std::uint32_t (&words)[n]) {
  if (first.raise != nullptr) {
    return;
  }
  first.raise = raise;
  auto* const to = reinterpret_cast<std::uint32_t*>(&first.words);
  for (int i = 0; i < n; ++i) {
    to[i] = words[i];
  }
}

// The block's dynamic shared memory, 16-byte aligned.
template <typename T>
__device__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
#else
  return reinterpret_cast<T*>(emulated_cuda::dynamic_shared_memory());
#endif
}

}  // namespace slackline::cuda
