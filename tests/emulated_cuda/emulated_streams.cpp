#include "tests/emulated_cuda/emulated_streams.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/cuda.h"

// The runtime's streams, events, captures and graphs.

struct CUgraph_st {
  std::vector<emulated_cuda::Job> jobs;
};

struct CUgraphExec_st {
  std::vector<emulated_cuda::Job> jobs;
};

namespace emulated_cuda {

namespace {

// The capture of the calling thread, which forbids it what may depend on work that does not run.
thread_local cudaStream_t capturing = nullptr;

struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> all;
};

Streams& streams() {
  static Streams made;
  return made;
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

bool spoils_capture() {
  if (capturing != nullptr) {
    capturing->fail_capture();
  }
  return capturing != nullptr;
}

void enqueue(cudaStream_t stream, Job job) {
  stream == nullptr ? job() : stream->enqueue(std::move(job));
}

}  // namespace emulated_cuda

cudaError_t cudaDeviceSynchronize() {
  if (emulated_cuda::spoils_capture()) {
    return cudaErrorStreamCaptureUnsupported;
  }
  auto& streams = emulated_cuda::streams();
  const std::scoped_lock lock(streams.mutex);
  for (const cudaStream_t stream : streams.all) {
    stream->synchronize();
  }
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
    emulated_cuda::spoils_capture();
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
  event->point = std::make_shared<emulated_cuda::Point>();
  event->captured_by = stream->captures() ? stream : nullptr;
  stream->enqueue([point = event->point] { point->pass(); }, CUstream_st::Runs::always);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured_by != nullptr) {
    emulated_cuda::spoils_capture();
    return cudaErrorCapturedEvent;
  }
  return event->point == nullptr || event->point->passed ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured_by != nullptr) {
    emulated_cuda::spoils_capture();
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
  emulated_cuda::capturing = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  emulated_cuda::capturing = nullptr;
  std::optional<std::vector<emulated_cuda::Job>> jobs = stream->end_capture();
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
  for (const emulated_cuda::Job& job : executable->jobs) {
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
