#pragma once

// The part of the CUDA runtime and of CUDA C++ that the CUDA backend uses, on the processor: with
// this folder before the toolkit's in the include path a .cu file is C++, and its kernels run
// without a GPU. Each stream is a thread. Threads of a block are fibers that take
// turns at barriers and warp exchanges; what a GPU would hang on, or leave undefined, throws
// std::logic_error that names the thread. Blocks of a grid run one after another. Both orders turn
// around from launch to launch. Slow, and exact: for tests. Not seen are races that need two blocks
// at once, and reads of __shared__ arrays of fixed size before they are written, which hold what
// the last block left there; dynamic shared memory is filled with NaN for each block.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

// Names are the toolkit's.
// NOLINTBEGIN(readability-identifier-naming,cppcoreguidelines-macro-usage,bugprone-reserved-identifier)

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __restrict__ __restrict
#define __grid_constant__

struct alignas(8) float2 {
  float x, y;
};

struct alignas(16) float4 {
  float x, y, z, w;
};

struct alignas(8) uint2 {
  unsigned x, y;
};

struct uint3 {
  unsigned x, y, z;
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;

  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim{};
inline thread_local dim3 gridDim{};

// ---- the runtime's functions ----

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
};

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMultiProcessorCount = 16,
};

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess,
  cudaDriverEntryPointSymbolNotFound,
};

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0;
inline constexpr unsigned cudaMemAttachGlobal = 1;
inline constexpr unsigned cudaEnableDefault = 0;

struct cudaDeviceProp {
  char name[256];
  int major, minor;
  int multiProcessorCount;
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlockOptin;
  int pciBusID;
};

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable,
                                 cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol,
                                             void** function,
                                             unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result);

// ---- what kernels call ----

namespace emulated_cuda {

inline constexpr int kWarp = 32;
inline constexpr std::size_t kSharedBytes = 227 * 1024;  // of a block, as on an H100

// How much cudaMalloc gives in all; a test of what happens then lowers it.
void set_device_memory(std::size_t bytes);

// Work in a stream's order. Null: at once.
void enqueue(cudaStream_t stream, std::function<void()> job);

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> kernel);

void block_barrier();
void warp_barrier(unsigned mask);
// Puts a value where the lanes of `mask` find it, and waits for theirs.
void give(unsigned mask, const void* value, std::size_t bytes);
// What `lane` of this warp gave in this exchange.
void take(int lane, void* value, std::size_t bytes);
[[nodiscard]] bool is_in(unsigned mask, int lane);
[[nodiscard]] int lane();
[[nodiscard]] std::byte* dynamic_shared_memory();

// Copies to shared memory that this thread begins, closes a group of, and waits for: all groups but
// the newest.
void begin_copy(void* to, const void* from, std::size_t bytes);
void close_copies();
void make_copies_but(std::size_t newest);

template <typename T>
[[nodiscard]] T exchange(unsigned mask, const T& value, int from) {
  static_assert(sizeof(T) <= 8);
  give(mask, &value, sizeof(T));
  T taken{};
  take(from, &taken, sizeof(T));
  return taken;
}

// Adds up, or otherwise joins, what the lanes of `mask` give, in their order.
template <typename T, typename Join>
[[nodiscard]] T joined(unsigned mask, T value, T first, const Join& join) {
  give(mask, &value, sizeof(T));
  for (int lane = 0; lane < kWarp; ++lane) {
    if (is_in(mask, lane)) {
      T taken{};
      take(lane, &taken, sizeof(T));
      first = join(first, taken);
    }
  }
  return first;
}

}  // namespace emulated_cuda

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return emulated_cuda::launch(*config, [=] { std::apply(kernel, values); });
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

inline void __syncthreads() {
  emulated_cuda::block_barrier();
}

inline void __syncwarp(unsigned mask = 0xffffffffU) {
  emulated_cuda::warp_barrier(mask);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = emulated_cuda::kWarp) {
  const int base = emulated_cuda::lane() / width * width;
  return emulated_cuda::exchange(mask, value, base + lane % width);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = emulated_cuda::kWarp) {
  const int own = emulated_cuda::lane();
  const int from = own ^ lanes;
  return emulated_cuda::exchange(mask, value, from / width == own / width ? from : own);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = emulated_cuda::kWarp) {
  const int own = emulated_cuda::lane();
  const int from = own + static_cast<int>(lanes);
  return emulated_cuda::exchange(mask, value, from / width == own / width ? from : own);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = emulated_cuda::kWarp) {
  const int own = emulated_cuda::lane();
  const int from = own - static_cast<int>(lanes);
  return emulated_cuda::exchange(mask, value, from >= own / width * width ? from : own);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned own = predicate != 0 ? 1U << static_cast<unsigned>(emulated_cuda::lane()) : 0U;
  return emulated_cuda::joined(mask, own, 0U, std::bit_or<>());
}

inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}

inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}

inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return emulated_cuda::joined(mask, value, 0U, std::plus<>());
}

inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return emulated_cuda::joined(
      mask, value, 0U, [](unsigned a, unsigned b) { return std::max(a, b); });
}

// Fibers of a block run on one thread of the processor: nothing interrupts these.
template <typename T>
T atomicAdd(T* to, T value) {
  static_assert(std::is_integral_v<T>, "sums of floats would depend on the order");
  return std::exchange(*to, *to + value);
}

template <typename T>
T atomicMax(T* to, T value) {
  return std::exchange(*to, std::max(*to, value));
}

template <typename T>
T atomicMin(T* to, T value) {
  return std::exchange(*to, std::min(*to, value));
}

template <typename T>
T atomicOr(T* to, T value) {
  return std::exchange(*to, *to | value);
}

inline void __threadfence() {}

inline int __popc(unsigned value) {
  return std::popcount(value);
}

inline int __clz(int value) {
  return std::countl_zero(static_cast<unsigned>(value));
}

inline int __ffs(int value) {
  return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1;
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32U);
}

inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}

inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}

// Rounded on their own: the compiler makes no fused multiplication and addition of them.
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}

inline float __fadd_rn(float a, float b) {
  volatile float sum = a + b;
  return sum;
}

inline float __fdiv_rn(float a, float b) {
  return a / b;
}

inline float rsqrtf(float value) {
  return 1.0F / std::sqrt(value);
}

inline float __expf(float value) {
  return std::exp(value);
}

template <typename T>
T __ldg(const T* from) {
  return *from;
}

template <typename T>
T __ldcs(const T* from) {
  return *from;
}

template <typename T>
void __stcs(T* to, T value) {
  *to = value;
}

// NOLINTEND(readability-identifier-naming,cppcoreguidelines-macro-usage,bugprone-reserved-identifier)
