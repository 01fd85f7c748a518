#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/buffer.h"
#include "core/tensor/workers.h"
#include "model/boundary_filter.h"
#include "model/generate/key_value_cache.h"
#include "model/stage.h"
#include "model/tensor_sum.h"

namespace slackline {

// Generates one sequence, token by token, in fp32. Keys and values of earlier tokens are kept, so a
// token costs one row of every product. The pass is Stage's, over a KeyValueCache. Logits equal
// those of a pass over the whole context up to fp32 rounding: sums over rows run in another order.
//
// A model has learned T positions. When a token would be one too many, the newest half of the
// context (T / 2 tokens, the new one included, at least that one) is kept and read again from
// position 0. So text of any length can be made, and a step that does this costs a prompt.
//
// Owns its caches and activations, in the memory of the parameters' device, where all is computed;
// only logits come to the host. Parameters must outlive it. One thread at a time.
class Decoder {
 public:
  // `filter` may be null; it is not owned. REQUIRES: parameters compute in f32.
  Decoder(Parameters& parameters, const ModelConfig& config, BoundaryFilter* filter = nullptr);

  // Forgets what was read and reads a prompt, of which the last T tokens count.
  // REQUIRES: at least one token; ids are in [0, V).
  void start(StreamView stream, std::span<const std::int32_t> prompt);

  // Reads one more token. REQUIRES: started; the id is in [0, V).
  void append(StreamView stream, std::int32_t token);

  // (V) logits of the token after those read, on the host; valid until the next call.
  [[nodiscard]] std::span<const float> logits() const { return logits_; }

  // Tokens the next logits depend on, at most T.
  [[nodiscard]] std::span<const std::int32_t> context() const { return context_; }

  // The workspace that a stream must offer.
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const Workers& workers);

 private:
  // Reads the context's tokens from `first` on: all of them (0), or the last alone.
  void read(StreamView stream, std::int64_t first);

  ModelConfig config_;
  BoundaryFilter* filter_;
  NoTensorSum sum_;
  Stage stage_;
  KeyValueCache cache_;
  Buffer tokens_;         // (1, T), of which those of a pass count
  Buffer device_logits_;  // (1, V)
  std::vector<std::int32_t> context_;
  std::vector<float> logits_;
};

}  // namespace slackline
