#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "tests/emulated_cuda/cuda.h"
#include "tests/emulated_cuda/cuda_runtime.h"

// The runtime's memory, streams and events. Each stream is a thread, so work of two streams, and of
// a stream and the host, is in the order that events and waits give it, and in no other.

namespace {

using Job = std::function<void()>;

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// What a record of an event stands for.
struct Point {
  std::atomic<bool> passed = false;
  double seconds = 0.0;  // of its passing

  void pass() {
    seconds = now();
    passed = true;
    passed.notify_all();
  }

  void wait() { passed.wait(false); }
};

}  // namespace

struct CUevent_st {
  std::shared_ptr<Point> point{};      // null: never recorded
  cudaStream_t captured_by = nullptr;  // the last record is a part of what this stream captured
};

// After a job that threw, those that follow are left out but for what others wait for, and who
// synchronizes gets the exception.
struct CUstream_st {
 public:
  enum class Runs { unless_failed, always };

  CUstream_st() : thread_([this] { run(); }) {}

  ~CUstream_st() {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  void enqueue(Job job, Runs runs = Runs::unless_failed) {
    if (captured_) {
      captured_->push_back(std::move(job));
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      jobs_.emplace_back(std::move(job), runs);
    }
    wake_.notify_one();
  }

  // Calls of the thread that captures, as all that queue work meanwhile.
  void begin_capture() {
    captured_.emplace();
    capture_failed_ = false;
  }

  [[nodiscard]] bool captures() const { return captured_.has_value(); }

  // By what a stream that is being captured cannot do.
  void fail_capture() { capture_failed_ = true; }

  // Empty where it failed.
  [[nodiscard]] std::optional<std::vector<Job>> end_capture() {
    std::optional<std::vector<Job>> jobs = std::exchange(captured_, std::nullopt);
    return capture_failed_ ? std::nullopt : std::move(jobs);
  }

  void synchronize() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return jobs_.empty() && !busy_; });
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        return;
      }
      const auto [job, runs] = std::move(jobs_.front());
      jobs_.pop_front();
      if (thrown_ && runs == Runs::unless_failed) {
        continue;
      }
      busy_ = true;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        job();
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      busy_ = false;
      thrown_ = thrown_ ? thrown_ : thrown;
      if (jobs_.empty()) {
        idle_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::pair<Job, Runs>> jobs_;
  bool busy_ = false;
  bool ending_ = false;
  std::exception_ptr thrown_;
  std::optional<std::vector<Job>> captured_{};  // by the host's thread
  bool capture_failed_ = false;
  std::thread thread_;
};

struct CUgraph_st {
  std::vector<Job> jobs;
};

struct CUgraphExec_st {
  std::vector<Job> jobs;
};

namespace emulated_cuda {

namespace {

// 8 GiB, or what a test of running out of memory says.
std::size_t limit_of_tests() {
  const char* const bytes = std::getenv("SL_EMULATED_DEVICE_MEMORY");
  return bytes == nullptr ? std::size_t{8} << 30U : std::strtoull(bytes, nullptr, 10);
}

// Pieces of memory by their first bytes.
using Pieces = std::map<std::uintptr_t, std::size_t>;

// What cudaMalloc and cudaHostAlloc have given.
struct Memory {
  std::mutex mutex;
  Pieces device;
  Pieces pinned;
  std::size_t used = 0;  // of the device's
  std::size_t limit = limit_of_tests();
};

Memory& memory() {
  static Memory all;
  return all;
}

struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> all;
};

Streams& streams() {
  static Streams made;
  return made;
}

std::uintptr_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

bool holds(const Pieces& pieces, const void* pointer) {
  const auto after = pieces.upper_bound(address(pointer));
  return after != pieces.begin() &&
         address(pointer) - std::prev(after)->first < std::prev(after)->second;
}

// Ordinary memory of the host, which the runtime does not copy behind the caller's back.
bool is_pageable(const void* pointer) {
  const std::scoped_lock lock(memory().mutex);
  return !holds(memory().device, pointer) && !holds(memory().pinned, pointer);
}

void* aligned(std::size_t bytes) {
  constexpr std::size_t kPage = 256;  // cudaMalloc's
  return std::aligned_alloc(kPage, (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage);
}

// Blocks the stream until the word at `at` is `value` or has passed it.
CUresult wait_value(CUstream stream, CUdeviceptr at, std::uint32_t value, unsigned flags) {
  auto* const word = reinterpret_cast<std::uint32_t*>(at);  // NOLINT(performance-no-int-to-ptr)
  if (flags != CU_STREAM_WAIT_VALUE_GEQ || is_pageable(word)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  stream->enqueue(
      [word, value] {
        constexpr std::chrono::microseconds kPause(20);
        const std::atomic_ref<std::uint32_t> now(*word);
        while (static_cast<std::int32_t>(now.load() - value) < 0) {
          std::this_thread::sleep_for(kPause);
        }
      },
      CUstream_st::Runs::always);
  return CUDA_SUCCESS;
}

}  // namespace

void set_device_memory(std::size_t bytes) {
  const std::scoped_lock lock(memory().mutex);
  memory().limit = bytes;
}

void enqueue(cudaStream_t stream, Job job) {
  stream == nullptr ? job() : stream->enqueue(std::move(job));
}

}  // namespace emulated_cuda

using emulated_cuda::memory;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    default:
      return "another CUDA error";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return cudaDriverGetVersion(version);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int /*device*/) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:00:00.0");
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::strcpy(properties->name, "emulated CUDA device");  // NOLINT: shorter than the array
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = memory().limit;
  properties->sharedMemPerBlockOptin = emulated_cuda::kSharedBytes;
  return cudaSetDevice(device);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties{};
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  *value = attribute == cudaDevAttrMultiProcessorCount
               ? properties.multiProcessorCount
               : static_cast<int>(properties.sharedMemPerBlockOptin);
  return error;
}

namespace {

// The capture of the calling thread, which forbids it what may depend on work that does not run.
thread_local cudaStream_t capturing = nullptr;

// Whether a call is forbidden; it spoils the capture then.
bool spoils_capture() {
  if (capturing != nullptr) {
    capturing->fail_capture();
  }
  return capturing != nullptr;
}

}  // namespace

cudaError_t cudaDeviceSynchronize() {
  if (spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  auto& streams = emulated_cuda::streams();
  const std::scoped_lock lock(streams.mutex);
  for (const cudaStream_t stream : streams.all) {
    stream->synchronize();
  }
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::scoped_lock lock(memory().mutex);
  *total = memory().limit;
  *free = memory().limit - std::min(memory().limit, memory().used);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  if (spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  const std::scoped_lock lock(memory().mutex);
  *to = nullptr;
  if (bytes > memory().limit - std::min(memory().limit, memory().used)) {
    return cudaErrorMemoryAllocation;
  }
  *to = emulated_cuda::aligned(bytes);
  std::memset(*to, 0xFF, bytes);
  memory().device[emulated_cuda::address(*to)] = bytes;
  memory().used += bytes;
  return cudaSuccess;
}

// As a GPU's, it waits for all that is under way.
cudaError_t cudaFree(void* piece) {
  if (piece == nullptr) {
    return cudaSuccess;
  }
  cudaDeviceSynchronize();
  const std::scoped_lock lock(memory().mutex);
  const auto found = memory().device.find(emulated_cuda::address(piece));
  if (found == memory().device.end()) {
    return cudaErrorInvalidValue;
  }
  memory().used -= found->second;
  memory().device.erase(found);
  std::free(piece);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned /*flags*/) {
  if (spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  const std::scoped_lock lock(memory().mutex);
  *to = emulated_cuda::aligned(bytes);
  if (*to == nullptr) {
    return cudaErrorMemoryAllocation;
  }
  memory().pinned[emulated_cuda::address(*to)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* piece) {
  if (piece == nullptr) {
    return cudaSuccess;
  }
  cudaDeviceSynchronize();
  const std::scoped_lock lock(memory().mutex);
  if (memory().pinned.erase(emulated_cuda::address(piece)) == 0) {
    return cudaErrorInvalidValue;
  }
  std::free(piece);
  return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned /*flags*/) {
  return cudaMalloc(memory, bytes);
}

// Pageable memory is read before the call returns, and written by then.
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  const bool refused =
      stream == nullptr ||
      (stream->captures() && (emulated_cuda::is_pageable(from) || emulated_cuda::is_pageable(to)));
  if (refused && spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (bytes > 0 && stream != nullptr && emulated_cuda::is_pageable(from)) {
    const auto* const first = static_cast<const std::byte*>(from);
    stream->enqueue([to, kept = std::vector<std::byte>(first, first + bytes)] {
      std::memcpy(to, kept.data(), kept.size());
    });
  } else if (bytes > 0) {
    emulated_cuda::enqueue(stream, [=] { std::memmove(to, from, bytes); });
  }
  if (stream != nullptr && emulated_cuda::is_pageable(to)) {
    stream->synchronize();
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (stream == nullptr && spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  emulated_cuda::enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  auto& streams = emulated_cuda::streams();
  const std::scoped_lock lock(streams.mutex);
  *stream = *streams.all.insert(new CUstream_st).first;  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  auto& streams = emulated_cuda::streams();
  const std::scoped_lock lock(streams.mutex);
  streams.all.erase(stream);
  delete stream;  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr && stream->captures()) {
    stream->fail_capture();
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream != nullptr) {
    stream->synchronize();
  }
  return cudaSuccess;
}

// What is captured waits for what is captured with it and for nothing else, as on a GPU; captures
// that take in a second stream are not emulated.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (event->point == nullptr) {
    return cudaSuccess;
  }
  if (stream->captures() && event->captured_by != stream) {
    stream->fail_capture();
    return cudaErrorStreamCaptureIsolation;
  }
  if (!stream->captures() && event->captured_by != nullptr) {
    spoils_capture();
    return cudaErrorCapturedEvent;
  }
  stream->enqueue([point = event->point] { point->wait(); }, CUstream_st::Runs::always);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new CUevent_st;  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->point = std::make_shared<Point>();
  event->captured_by = stream->captures() ? stream : nullptr;
  stream->enqueue([point = event->point] { point->pass(); }, CUstream_st::Runs::always);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured_by != nullptr) {
    spoils_capture();
    return cudaErrorCapturedEvent;
  }
  return event->point == nullptr || event->point->passed ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured_by != nullptr) {
    spoils_capture();
    return cudaErrorCapturedEvent;
  }
  if (event->point != nullptr) {
    event->point->wait();
  }
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (cudaEventQuery(begin) != cudaSuccess || cudaEventQuery(end) != cudaSuccess) {
    return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(1e3 * (end->point->seconds - begin->point->seconds));
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  stream->begin_capture();
  capturing = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  capturing = nullptr;
  std::optional<std::vector<Job>> jobs = stream->end_capture();
  *graph = nullptr;
  if (!jobs) {
    return cudaErrorStreamCaptureUnsupported;
  }
  *graph = new CUgraph_st{std::move(*jobs)};  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable,
                                 cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable = new CUgraphExec_st{graph->jobs};  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Job& job : executable->jobs) {
    stream->enqueue(job);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;  // NOLINT(cppcoreguidelines-owning-memory)
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* /*kernel*/,
                                 cudaFuncAttribute /*attribute*/,
                                 int /*value*/) {
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol,
                                             void** function,
                                             unsigned /*version*/,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(symbol, "cuStreamWaitValue32") == 0;
  *function = known ? reinterpret_cast<void*>(&emulated_cuda::wait_value) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
