#include "compress/codec_bytes.h"

#include <algorithm>
#include <cmath>

#include "compress/frame.h"
#include "core/check.h"

namespace slackline {

namespace {

constexpr std::size_t kBitsOfByte = 8;

}  // namespace

std::int64_t factor_rank(const CodecSetting& setting, const MatrixShape& shape) {
  return std::min({static_cast<std::int64_t>(setting.rank), shape.rows, shape.columns});
}

bool shards_share_factor_rank(const CodecSetting& setting,
                              const MatrixShape& matrix,
                              int num_shards) {
  const auto rank_of = [&](std::int64_t rows) {
    return factor_rank(setting, {.rows = rows, .columns = matrix.columns});
  };
  return rank_of(matrix.rows / num_shards) == rank_of((matrix.rows + num_shards - 1) / num_shards);
}

std::size_t kept_elements(const CodecSetting& setting, const MatrixShape& shape) {
  const std::size_t count = shape.num_elements();
  const double share = std::round(setting.ratio * static_cast<double>(count));
  return std::clamp<std::size_t>(static_cast<std::size_t>(share), 1, count);
}

std::size_t packed_bytes(const CodecSetting& setting, const MatrixShape& shape) {
  const auto bits =
      static_cast<std::size_t>(shape.columns) * static_cast<std::size_t>(setting.bits);
  return static_cast<std::size_t>(shape.rows) * ((bits + kBitsOfByte - 1) / kBitsOfByte);
}

std::size_t payload_bytes(const CodecSetting& setting, const MatrixShape& shape) {
  return traits_of(setting.kind).payload_bytes(setting, shape);
}

std::size_t frame_bytes(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  std::size_t bytes = sizeof(FrameHeader) + traits_of(setting.kind).key_bytes;
  for (const CodecPart& part : parts) {
    bytes += payload_bytes(setting, part.shape);
  }
  return bytes;
}

std::vector<SumRound> sum_rounds(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  SL_CHECK(adds(setting.kind), name_of(setting.kind));
  return traits_of(setting.kind).sum_rounds(setting, parts);
}

bool adds(CodecKind kind) {
  return traits_of(kind).sum_rounds != nullptr;
}

std::size_t state_bytes(const CodecSetting& setting,
                        const std::vector<CodecPart>& parts,
                        CodecUse use) {
  const bool keeps = traits_of(setting.kind).trains;
  if (!keeps && (use != CodecUse::sums || !adds(setting.kind))) {
    return 0;
  }
  std::size_t bytes = 0;
  for (const SumRound& round : sum_rounds(setting, parts)) {
    const bool narrow = round.element_bytes != size_of(DType::f32);
    bytes += round.elements * (round.element_bytes + (keeps && narrow ? size_of(DType::f32) : 0));
  }
  return bytes;
}

std::size_t learned_bytes(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  if (!traits_of(setting.kind).trains) {
    return 0;
  }
  std::size_t elements = 0;
  for (const CodecPart& part : parts) {
    elements += static_cast<std::size_t>(factor_rank(setting, part.shape) * part.shape.columns);
  }
  return elements * size_of(DType::f32);
}

bool shrinks(const CodecSetting& setting, const MatrixShape& shape, DType plain) {
  return payload_bytes(setting, shape) < shape.num_elements() * size_of(plain);
}

}  // namespace slackline
