#include "compress/kernels/message_checks.h"
#include "core/cuda/device.h"
#include "core/cuda/launch.h"
#include "core/rng.h"

namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int kWords = 4;

using Raise = void (*)(const DeviceFault& fault);

// One thread for each word. Messages may begin at any byte.
__global__ void write_words_kernel(MessageWords words, unsigned char* message) {
  const std::uint32_t word = words[threadIdx.x];
  for (unsigned byte = 0; byte < sizeof(word); ++byte) {
    message[threadIdx.x * sizeof(word) + byte] = static_cast<unsigned char>(word >> (8U * byte));
  }
}

__device__ inline std::uint32_t word_at(const unsigned char* message, int index) {
  std::uint32_t word = 0;
  for (int byte = 0; byte < 4; ++byte) {
    word |= std::uint32_t{message[4 * index + byte]} << (8 * byte);
  }
  return word;
}

__global__ void check_words_kernel(const unsigned char* message,
                                   MessageWords due,
                                   Raise raise,
                                   CudaStream::Faults* faults) {
  bool equal = true;
  std::uint32_t words[2 * kWords];  // found, due
  for (int i = 0; i < kWords; ++i) {
    words[i] = word_at(message, i);
    words[kWords + i] = due[i];
    equal = equal && words[i] == due[i];
  }
  if (!equal) {
    tell_fault(faults->first, raise, words);
  }
}

// position = the least one of a disorder, whatever the order of blocks.
__global__ void __launch_bounds__(kThreads) find_disorder_kernel(const std::uint32_t* indices,
                                                                 std::uint32_t k,
                                                                 std::uint32_t n,
                                                                 std::uint32_t* position) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < k && (indices[i] >= n || (i > 0 && indices[i] <= indices[i - 1]))) {
    atomicMin(position, static_cast<std::uint32_t>(i));
  }
}

__global__ void tell_disorder_kernel(const std::uint32_t* indices,
                                     std::uint32_t k,
                                     std::uint32_t n,
                                     std::uint32_t tag,
                                     Raise raise,
                                     CudaStream::Faults* faults) {
  const std::uint32_t first = faults->position;
  faults->position = CudaStream::Faults::kNowhere;
  if (first < k) {
    const std::uint32_t before = first == 0 ? 0 : indices[first - 1];
    tell_fault(faults->first, raise, {first, indices[first], before, k, n, tag});
  }
}

}  // namespace

void write_words(StreamView stream, const Tensor& message, const MessageWords& words) {
  launch(stream,
         {.grid = 1, .block = kWords},
         write_words_kernel,
         words,
         reinterpret_cast<unsigned char*>(message.raw()));
}

void check_words(StreamView stream,
                 const Tensor& message,
                 const MessageWords& due,
                 void (*raise)(const DeviceFault& fault)) {
  launch(stream,
         {.grid = 1, .block = 1},
         check_words_kernel,
         reinterpret_cast<const unsigned char*>(message.raw()),
         due,
         raise,
         stream.cuda().faults());
}

void check_ascending(StreamView stream,
                     const Tensor& indices,
                     std::size_t n,
                     std::uint32_t tag,
                     void (*raise)(const DeviceFault& fault)) {
  const std::uint32_t k = low_word(indices.num_elements());
  const auto* at = indices.data<std::uint32_t>();
  CudaStream::Faults* const faults = stream.cuda().faults();
  launch(stream,
         {.grid = blocks_for(k, kThreads), .block = kThreads},
         find_disorder_kernel,
         at,
         k,
         low_word(n),
         &faults->position);
  launch(stream,
         {.grid = 1, .block = 1},
         tell_disorder_kernel,
         at,
         k,
         low_word(n),
         tag,
         raise,
         faults);
}

}  // namespace slackline::cuda
