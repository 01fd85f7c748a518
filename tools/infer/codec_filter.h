#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "core/checkpoint/checkpoint.h"
#include "core/tensor/buffer.h"
#include "core/tensor/workers.h"
#include "model/boundary_filter.h"
#include "tools/infer/activation_compression.h"

namespace slackline {

// Passes activations through the codecs that stood between a training's pipeline stages: every
// message is encoded and decoded. There is no error feedback and messages leave no state, so that
// equal rows come out equal, whenever they pass. Owns codecs and their stream, on the device of the
// rows.
//
// The rows of a pass are cut into groups of as many tokens as a training message had, and groups
// over tensor ranks as messages were. What remains, fewer tokens than that, is a smaller message of
// the same setting: cut over the ranks where it can be, else one matrix of whole tokens. So are a
// prompt and each single token that a text goes on with, whose one row shares Top-K's budget and
// scales with no other token.
class CodecFilter final : public BoundaryFilter {
 public:
  // Takes low-rank factors from the checkpoint: those of data rank 0; where it has none, the first
  // ones that the seed draws.
  CodecFilter(const ActivationCompression& compression,
              Checkpoint& checkpoint,
              const Workers& workers);

  [[nodiscard]] const ActivationCompression& compression() const { return compression_; }

  // Codecs that draw numbers draw for step 0, as training's own evaluation does, and for group
  // 0, 1, ... of the pass as micro-batch. On the CUDA device blocks until the rows are changed.
  void after_layer(StreamView stream, int layer, const Tensor& rows) override;

 private:
  // A tensor rank's part of a message, and the state that its codec begins every message with.
  struct Share {
    std::unique_ptr<Codec> codec;
    MatrixShape shape{};
    Buffer frame{};
    Buffer first_state{};  // empty where messages leave none
  };

  using Shares = std::vector<Share>;

  [[nodiscard]] Shares& shares_of(std::size_t boundary, std::int64_t tokens);
  [[nodiscard]] Share make_share(std::size_t boundary, const MatrixShape& shape, int rank);
  void read_factors(Checkpoint& checkpoint);
  void pass_through(Shares& shares, const Tensor& group, std::uint64_t number);

  ActivationCompression compression_;
  Workers workers_;
  std::vector<std::vector<float>> factors_;  // of each boundary (tensor, r, m); or empty
  std::map<std::pair<std::size_t, std::int64_t>, Shares> shares_;  // by boundary and tokens
  std::unique_ptr<Stream> stream_;  // with a workspace for all codecs so far
};

}  // namespace slackline
