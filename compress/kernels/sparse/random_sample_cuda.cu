#include "compress/kernels/sparse/random_sample.h"
#include "core/cuda/launch.h"
#include "core/random_permutation.h"

namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint32_t kImagesPerThread = 8;  // each of which takes its share of the round keys

__device__ inline PhiloxKey mixed(PhiloxKey key, const unsigned char* words) {
  if (words == nullptr) {
    return key;
  }
  PhiloxBlock block{};
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t byte = 0; byte < 4; ++byte) {
      block[i] |= std::uint32_t{words[4 * i + byte]} << (8 * byte);
    }
  }
  const PhiloxBlock found = philox(key, block);
  return {found[0], found[1]};
}

__global__ void __launch_bounds__(kThreads) sample_kernel(PhiloxKey key,
                                                          const unsigned char* words,
                                                          std::uint64_t n,
                                                          std::uint32_t side,
                                                          std::uint64_t k,
                                                          std::uint32_t* indices) {
  const RandomPermutation permutation(mixed(key, words), n, side);
  std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads * kImagesPerThread + threadIdx.x;
  for (std::uint32_t image = 0; image < kImagesPerThread && i < k; ++image, i += kThreads) {
    indices[i] = permutation(static_cast<std::uint32_t>(i));
  }
}

}  // namespace

void random_sample(StreamView stream, const SampleKey& key, std::size_t n, const Tensor& indices) {
  const std::size_t k = indices.num_elements();
  launch(stream,
         {.grid = blocks_for(k, std::size_t{kThreads} * kImagesPerThread), .block = kThreads},
         sample_kernel,
         key.key,
         reinterpret_cast<const unsigned char*>(key.words.raw()),
         std::uint64_t{n},
         RandomPermutation::side_of(n),
         std::uint64_t{k},
         indices.data<std::uint32_t>());
}

}  // namespace slackline::cuda
