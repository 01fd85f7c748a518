#pragma once

#include <cstddef>

#include "core/rng.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Which sample: `key` itself, or where a message says which, the first two words of philox(key, the
// 16 bytes of `words`). Words are u8 at any address, read where and when the op runs.
struct SampleKey {
  PhiloxKey key{};
  Tensor words{};
};

// A uniform sample of k of n without replacement: indices (k) u32 becomes the images of
// 0 .. k - 1 under RandomPermutation(key, n), in that order. No scratch. REQUIRES: k <= n < 2^32.
void random_sample(StreamView stream, const SampleKey& key, std::size_t n, const Tensor& indices);

}  // namespace slackline
