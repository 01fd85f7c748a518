#pragma once

#include <cstdint>

#include "core/kernels/attention/attention.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "model/model_config.h"

namespace slackline {

// The keys and values of one sequence's tokens, in fp32, for every layer of a model: a pass that
// reads one more token attends to those before it without computing them again. Owns its memory, on
// one device. Used by the thread of the pass.
class KeyValueCache {
 public:
  KeyValueCache(const ModelConfig& config, Device device);

  // Keeps the keys and values of the tokens of `args`, which have the positions from `first` on,
  // and attends to them and to all before them. From position 0 on that is attention_forward; after
  // that, one token is read at a time, and its log_sum_exp is not written.
  // REQUIRES: one sequence in f32, all heads, no dropout; first = 0, or one token and those before
  // it kept.
  void attend(StreamView stream, int layer, std::int64_t first, const AttentionForward& args);

 private:
  // Keys (part 0) or values (1) of a layer, (1, T, C), of which the rows of the tokens read count.
  [[nodiscard]] Tensor rows(int layer, int part) const;

  Shape shape_;
  Buffer buffer_;
};

}  // namespace slackline
