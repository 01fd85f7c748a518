#include "compress/codec_bytes.h"

#include <algorithm>
#include <cmath>

#include "compress/frame.h"
#include "compress/kernels/sparse/elias_fano.h"
#include "core/check.h"

namespace slackline {

namespace {

constexpr std::size_t kScaleBytes = 2;  // bf16
constexpr std::size_t kWordBytes = 4;   // top_k's parts are whole words
constexpr std::size_t kKeyBytes = 16;   // random_k: step and micro-batch, once a frame
constexpr std::size_t kBitsOfByte = 8;

std::size_t divided_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

// The code of the indices, and the values.
std::size_t top_k_bytes(const CodecSetting& setting, const MatrixShape& shape) {
  const std::size_t kept = kept_elements(setting, shape);
  const EliasFano code{.n = shape.num_elements(), .k = kept};
  return (code.words() + divided_up(kept * size_of(setting.values), kWordBytes)) * kWordBytes;
}

}  // namespace

std::int64_t factor_rank(const CodecSetting& setting, const MatrixShape& shape) {
  return std::min({static_cast<std::int64_t>(setting.rank), shape.rows, shape.columns});
}

std::size_t kept_elements(const CodecSetting& setting, const MatrixShape& shape) {
  const std::size_t count = shape.num_elements();
  const double share = std::round(setting.ratio * static_cast<double>(count));
  return std::clamp<std::size_t>(static_cast<std::size_t>(share), 1, count);
}

std::size_t num_scales(const CodecSetting& setting, const MatrixShape& shape) {
  const auto rows = static_cast<std::size_t>(shape.rows);
  const auto columns = static_cast<std::size_t>(shape.columns);
  switch (setting.scale) {
    case ScaleOf::channel:
      return columns;
    case ScaleOf::token:
      return rows;
    case ScaleOf::group:
      return rows * divided_up(columns, static_cast<std::size_t>(setting.group));
    case ScaleOf::tensor:
      break;
  }
  return 1;
}

std::size_t packed_bytes(const CodecSetting& setting, const MatrixShape& shape) {
  const auto bits =
      static_cast<std::size_t>(shape.columns) * static_cast<std::size_t>(setting.bits);
  return static_cast<std::size_t>(shape.rows) * divided_up(bits, kBitsOfByte);
}

std::size_t payload_bytes(const CodecSetting& setting, const MatrixShape& shape) {
  switch (setting.kind) {
    case CodecKind::low_rank:
      return static_cast<std::size_t>((shape.rows + shape.columns) * factor_rank(setting, shape)) *
             size_of(setting.factors);
    case CodecKind::top_k:
      return top_k_bytes(setting, shape);
    case CodecKind::random_k:
      return kept_elements(setting, shape) * size_of(setting.values);
    case CodecKind::quantize:
      return packed_bytes(setting, shape) + num_scales(setting, shape) * kScaleBytes;
    case CodecKind::cast:
      break;
  }
  return shape.num_elements() * size_of(DType::bf16);
}

std::size_t frame_bytes(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  std::size_t bytes = sizeof(FrameHeader);
  if (setting.kind == CodecKind::random_k) {
    bytes += kKeyBytes;
  }
  for (const CodecPart& part : parts) {
    bytes += payload_bytes(setting, part.shape);
  }
  return bytes;
}

std::vector<SumRound> sum_rounds(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  SL_CHECK(adds(setting.kind), name_of(setting.kind));
  if (setting.kind == CodecKind::low_rank) {
    SumRound left{.element_bytes = size_of(setting.factors)};
    SumRound right = left;
    for (const CodecPart& part : parts) {
      const std::int64_t r = factor_rank(setting, part.shape);
      left.elements += static_cast<std::size_t>(part.shape.rows * r);
      right.elements += static_cast<std::size_t>(part.shape.columns * r);
    }
    return {left, right};
  }
  const bool casts = setting.kind == CodecKind::cast;
  SumRound round{.element_bytes = size_of(casts ? DType::bf16 : setting.values)};
  for (const CodecPart& part : parts) {
    round.elements += casts ? part.shape.num_elements() : kept_elements(setting, part.shape);
  }
  return {round};
}

bool adds(CodecKind kind) {
  return kind == CodecKind::low_rank || kind == CodecKind::random_k || kind == CodecKind::cast;
}

std::size_t state_bytes(const CodecSetting& setting,
                        const std::vector<CodecPart>& parts,
                        CodecUse use) {
  const bool keeps = setting.kind == CodecKind::low_rank && use != CodecUse::receives_frames;
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

bool shrinks(const CodecSetting& setting, const MatrixShape& shape, DType plain) {
  return payload_bytes(setting, shape) < shape.num_elements() * size_of(plain);
}

}  // namespace slackline
