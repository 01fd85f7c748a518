#include "model/generate/key_value_cache.h"

namespace slackline {

namespace {

constexpr int kParts = 2;  // keys, values

std::size_t cache_bytes(const ModelConfig& config) {
  const std::size_t rows = checked_multiply(static_cast<std::size_t>(config.layers),
                                            kParts * static_cast<std::size_t>(config.sequence));
  return checked_multiply(rows, static_cast<std::size_t>(config.hidden) * sizeof(float));
}

}  // namespace

KeyValueCache::KeyValueCache(const ModelConfig& config, Device device)
    : shape_{1, config.sequence, config.hidden},
      buffer_("cached keys and values", cache_bytes(config), backing_of(device)) {}

Tensor KeyValueCache::rows(int layer, int part) const {
  const std::size_t bytes = shape_.num_elements() * sizeof(float);
  return buffer_.view(
      DType::f32, shape_, (kParts * static_cast<std::size_t>(layer) + std::size_t(part)) * bytes);
}

void KeyValueCache::attend(StreamView stream,
                           int layer,
                           std::int64_t first,
                           const AttentionForward& args) {
  const std::int64_t N = args.qkv.dim(1);
  const std::int64_t C = shape_[2];
  const Tensor keys = rows(layer, 0);
  const Tensor values = rows(layer, 1);
  cache_keys_values(stream,
                    {.qkv = args.qkv.reshaped({N, 3 * C}),
                     .keys = keys.reshaped({shape_[1], C}),
                     .values = values.reshaped({shape_[1], C}),
                     .first = first});
  if (first == 0) {
    attention_forward(stream, args);
    return;
  }
  SL_CHECK_EQ(N, 1);
  attention_decode(stream,
                   {.query = Tensor(args.qkv.raw(), DType::f32, {1, C}, args.qkv.device()),
                    .keys = keys,
                    .values = values,
                    .output = args.output.reshaped({1, C}),
                    .num_heads = args.num_heads,
                    .length = first + 1});
}

}  // namespace slackline
