#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "core/kernels/attention/attention.h"
#include "core/kernels/simd.h"
// After simd.h, which configures Highway.
#include <hwy/contrib/math/math-inl.h>

// One query a head against the cached keys and values: read once, in blocks of positions, with
// online softmax. Bound by memory. The output row serves as the accumulator.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;

constexpr std::size_t kBlock = 64;  // positions; a multiple of the lanes

struct CachedHead {
  const float* keys = nullptr;
  const float* values = nullptr;
  std::size_t stride = 0;  // between positions
  std::size_t D = 0;
};

// scores[i] = scale * query . key of position begin + i, for i < count; the rest of the block is
// far below all.
void score_block(const CachedHead& head,
                 const float* query,
                 std::size_t begin,
                 std::size_t count,
                 float* scores) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(head.D));
  std::fill(scores, scores + kBlock, -INFINITY);
  for (std::size_t i = 0; i < count; ++i) {
    const float* key = head.keys + (begin + i) * head.stride;
    simd::Floats sum = simd::zero();
    simd::for_each_vector(head.D, [&](std::size_t d, auto part) {
      sum = hn::MulAdd(simd::load(query + d, part), simd::load(key + d, part), sum);
    });
    scores[i] = scale * simd::sum_lanes(sum);
  }
}

// Replaces scores by exp(score - most) and returns their sum.
float exponentiate(float* scores, float most) {
  simd::Floats sum = simd::zero();
  simd::for_each_vector(kBlock, [&](std::size_t i, auto part) {
    const simd::Floats score = simd::load(scores + i, part);
    const simd::Floats weight = hn::Exp(simd::kFloats, hn::Sub(score, simd::splat(most)));
    simd::store(weight, scores + i, part);
    sum = hn::Add(sum, weight);
  });
  return simd::sum_lanes(sum);
}

void attend(const CachedHead& head, const float* query, std::size_t length, float* output) {
  std::fill(output, output + head.D, 0.0F);
  alignas(64) float weights[kBlock];
  float most = -INFINITY;
  float total = 0.0F;
  for (std::size_t begin = 0; begin < length; begin += kBlock) {
    const std::size_t count = std::min(kBlock, length - begin);
    score_block(head, query, begin, count, weights);
    const float block_most = std::max(most, *std::max_element(weights, weights + count));
    const float kept = std::exp(most - block_most);
    most = block_most;
    total = total * kept + exponentiate(weights, most);
    simd::scale_elements(output, head.D, kept);
    for (std::size_t i = 0; i < count; ++i) {
      const float* value = head.values + (begin + i) * head.stride;
      simd::for_each_vector(head.D, [&](std::size_t d, auto part) {
        const simd::Floats sum = simd::load(output + d, part);
        const simd::Floats weight = simd::splat(weights[i]);
        simd::store(hn::MulAdd(weight, simd::load(value + d, part), sum), output + d, part);
      });
    }
  }
  simd::scale_elements(output, head.D, 1.0F / total);
}

}  // namespace

void attention_decode(StreamView stream, const AttentionDecode& args) {
  const auto H = static_cast<std::size_t>(args.num_heads);
  const auto C = static_cast<std::size_t>(args.query.dim(1));
  const auto capacity = static_cast<std::size_t>(args.keys.dim(1));
  const auto B = static_cast<std::size_t>(args.query.dim(0));
  const std::size_t D = C / H;
  stream.pool().parallel_for(B * H, [&](std::size_t task, int) {
    const std::size_t column = task % H * D;
    const std::size_t row = task / H;
    const CachedHead head{.keys = args.keys.data<float>() + row * capacity * C + column,
                          .values = args.values.data<float>() + row * capacity * C + column,
                          .stride = C,
                          .D = D};
    attend(head,
           args.query.data<float>() + row * C + column,
           static_cast<std::size_t>(args.length),
           args.output.data<float>() + row * C + column);
  });
}

void cache_keys_values(StreamView /*stream*/, const AttentionCache& args) {
  const std::int64_t C = args.keys.dim(1);
  const std::size_t row_bytes = static_cast<std::size_t>(C) * sizeof(float);
  for (std::int64_t i = 0; i < args.qkv.dim(0); ++i) {
    const float* row = args.qkv.data<float>() + i * 3 * C;
    const std::int64_t cached = (args.first + i) * C;
    std::memcpy(args.keys.data<float>() + cached, row + C, row_bytes);
    std::memcpy(args.values.data<float>() + cached, row + 2 * C, row_bytes);
  }
}

}  // namespace slackline::cpu
