#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/codec_setting.h"
#include "core/comm/collective_bytes.h"
#include "model/parameters.h"
#include "parallel/plan/bucket_compression.h"
#include "parallel/sync/outer_plan.h"

namespace slackline {

// A rank's differences of an outer round where a codec takes them. They travel as the gradients of
// a bucket do: matrices coded, the rest packed. Parameters stand for both; whose memory their
// gradients are is for others to say. Moves, but does not copy: the bucket points to parameters.
struct CodedRound {
  // A matrix: all of a share as one row, or where the codec makes factors the whole rows of it.
  struct Matrix {
    std::size_t share = 0;  // of the rank's
    Slice elements{};       // of the rank's buffers
  };

  CodedRound() = default;
  CodedRound(CodedRound&&) = default;
  CodedRound& operator=(CodedRound&&) = default;
  CodedRound(const CodedRound&) = delete;
  CodedRound& operator=(const CodedRound&) = delete;
  ~CodedRound() = default;

  std::vector<Parameter> parameters{};  // of matrices, then of the rest if there is one
  std::vector<Matrix> matrices{};
  std::vector<Slice> rest{};  // ranges of the rank's buffers, packed in this order
  CodedBucket bucket{};

  [[nodiscard]] std::size_t rest_elements() const;
};

struct RoundPlace {
  int workers = 1;
  int worker = 0;  // this rank's
  std::uint64_t seed = 0;
};

// Codes matrices and tables that get smaller by it; norms and biases travel plain.
[[nodiscard]] CodedRound coded_round(const std::vector<OuterShare>& shares,
                                     const std::vector<OptimizerPiece>& pieces,
                                     const CodecSetting& setting,
                                     const RoundPlace& place);

}  // namespace slackline
