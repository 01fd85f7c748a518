#pragma once

#include <cstddef>
#include <vector>

#include "compress/codec_traits.h"

namespace slackline {

// What codecs send, as closed formulas of setting and shapes (docs/compression.md).

// Rank of the factors of a matrix: of low_rank.
[[nodiscard]] std::int64_t factor_rank(const CodecSetting& setting, const MatrixShape& shape);

// Whether it is the same for all of so many shards of a matrix's rows, which differ by one row at
// most.
[[nodiscard]] bool shards_share_factor_rank(const CodecSetting& setting,
                                            const MatrixShape& matrix,
                                            int num_shards);

// Elements that top_k and random_k keep of a matrix: the share, rounded, at least one.
[[nodiscard]] std::size_t kept_elements(const CodecSetting& setting, const MatrixShape& shape);

// Bytes of a matrix's packed numbers: of quantize. Rows begin on whole bytes.
[[nodiscard]] std::size_t packed_bytes(const CodecSetting& setting, const MatrixShape& shape);

// Bytes of a matrix in a frame, without the header.
[[nodiscard]] std::size_t payload_bytes(const CodecSetting& setting, const MatrixShape& shape);

// A whole frame.
[[nodiscard]] std::size_t frame_bytes(const CodecSetting& setting,
                                      const std::vector<CodecPart>& parts);

// The tensors of a message that is added up over ranks, round by round.
// REQUIRES: messages of this kind add.
[[nodiscard]] std::vector<SumRound> sum_rounds(const CodecSetting& setting,
                                               const std::vector<CodecPart>& parts);

[[nodiscard]] bool adds(CodecKind kind);

enum class CodecUse { sends_frames, sums };

// Memory that a codec takes for itself, residuals apart.
[[nodiscard]] std::size_t state_bytes(const CodecSetting& setting,
                                      const std::vector<CodecPart>& parts,
                                      CodecUse use);

// The part of it that messages teach and a checkpoint keeps.
[[nodiscard]] std::size_t learned_bytes(const CodecSetting& setting,
                                        const std::vector<CodecPart>& parts);

// Whether a matrix's payload is smaller than its elements in the dtype of the plain message.
[[nodiscard]] bool shrinks(const CodecSetting& setting, const MatrixShape& shape, DType plain);

}  // namespace slackline
