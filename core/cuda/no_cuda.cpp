#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_graph.h"
#include "core/cuda/cuda_memory.h"
#include "core/cuda/cuda_stream.h"
#include "core/cuda/ranges.h"
#include "core/error.h"

// What stands in a program without the CUDA backend. Weak: the backend's own definitions, linked
// into programs that have it, win.
namespace slackline {

namespace {

constexpr const char* kReason =
    "this program was built without CUDA; preset cuda builds one with it";

[[noreturn]] void refuse() {
  throw DeviceError(kReason);
}

}  // namespace

[[gnu::weak]] CudaStream::CudaStream() {
  refuse();
}

[[gnu::weak]] CudaStream::~CudaStream() {
  static_cast<void>(host_faults_);
}

[[gnu::weak]] void CudaStream::synchronize() const {}

[[gnu::weak]] void CudaStream::follow(const CudaEvent& /*event*/) const {}

[[gnu::weak]] void CudaStream::follow(const std::uint32_t* /*word*/,
                                      std::uint32_t /*value*/) const {}

[[gnu::weak]] CudaEvent::CudaEvent(Use /*use*/) {
  refuse();
}

[[gnu::weak]] CudaEvent::~CudaEvent() {
  static_cast<void>(handle_);
}

[[gnu::weak]] void CudaEvent::record(const CudaStream& /*stream*/) {}

[[gnu::weak]] void CudaEvent::wait() const {}

[[gnu::weak]] bool CudaEvent::is_done() const {
  return true;
}

[[gnu::weak]] double CudaEvent::seconds_since(const CudaEvent& /*earlier*/) const {
  return 0.0;
}

[[gnu::weak]] std::unique_ptr<CudaGraph> CudaGraph::capture(const CudaStream& /*stream*/,
                                                            const std::function<void()>& /*work*/) {
  return nullptr;
}

[[gnu::weak]] CudaGraph::~CudaGraph() {
  static_cast<void>(executable_);
}

[[gnu::weak]] void CudaGraph::launch(const CudaStream& /*stream*/) const {}

// Nor has a program NCCL whose backend was built without it.
namespace cuda {

[[gnu::weak]] bool is_built() {
  return false;
}

[[gnu::weak]] std::string obstacle() {
  return kReason;
}

[[gnu::weak]] void use_device(int /*rank_on_node*/) {
  refuse();
}

[[gnu::weak]] const RankDevice& device_of_thread() {
  static const RankDevice none;
  return none;
}

[[gnu::weak]] void adopt_device(const RankDevice& /*device*/) {}

[[gnu::weak]] std::string device_id() {
  refuse();
}

[[gnu::weak]] std::string device_text() {
  refuse();
}

[[gnu::weak]] void begin_range(const std::string& /*name*/) {}

[[gnu::weak]] void end_range() {}

[[gnu::weak]] std::shared_ptr<MemoryPool> pool_of_thread() {
  refuse();
}

[[gnu::weak]] bool MemoryPool::reserve(std::size_t /*bytes*/) {
  return false;
}

[[gnu::weak]] MemoryPool::Use MemoryPool::use() const {
  return {};
}

[[gnu::weak]] std::byte* MemoryPool::take(std::size_t /*bytes*/) {
  return nullptr;
}

[[gnu::weak]] void MemoryPool::give_back(std::byte* /*piece*/) {}

[[gnu::weak]] std::size_t free_bytes() {
  refuse();
}

[[gnu::weak]] std::byte* allocate_pinned(std::size_t /*bytes*/) {
  refuse();
}

[[gnu::weak]] void release_pinned(std::byte* /*memory*/) {}

[[gnu::weak]] void fill_zero(std::byte* /*memory*/, std::size_t /*bytes*/) {}

[[gnu::weak]] void copy_now(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) {}

[[gnu::weak]] void copy(CUstream_st* /*stream*/,
                        void* /*to*/,
                        const void* /*from*/,
                        std::size_t /*bytes*/) {}

}  // namespace cuda

}  // namespace slackline
