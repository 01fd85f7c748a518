#include "compress/kernels/sparse/random_sample.h"

#include <limits>
#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void random_sample(
    StreamView stream, const SampleKey& key, std::size_t n, const Tensor& indices))

void random_sample(StreamView stream, const SampleKey& key, std::size_t n, const Tensor& indices) {
  check_operand(indices, {"random_sample indices", DType::u32, indices.shape()});
  const std::size_t k = indices.num_elements();
  SL_CHECK(k <= n && n <= std::numeric_limits<std::uint32_t>::max(),
           "a sample of " + std::to_string(k) + " of " + std::to_string(n));
  SL_CHECK(key.words.empty() || key.words.bytes() == sizeof(PhiloxBlock),
           "a sample's words are " + key.words.shape().to_string());
  if (k > 0) {
    SL_BACKEND(stream, random_sample, stream, key, n, indices);
  }
}

}  // namespace slackline
