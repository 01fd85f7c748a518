#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "compress/codec_bytes.h"
#include "compress/codec_keys.h"
#include "compress/codec_traits.h"
#include "compress/frame.h"
#include "compress/kept_parts.h"
#include "compress/kernels/message_checks.h"
#include "compress/kernels/sparse/elias_fano.h"
#include "compress/kernels/sparse/sparse.h"
#include "compress/kernels/sparse/top_k.h"
#include "core/check.h"
#include "core/error.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/arena.h"

namespace slackline {

namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint32_t);

// Sends the elements largest in magnitude: their indices, ascending in each matrix, and their
// values. A frame is
//   header (parameter: kept elements of the message)
//   of one matrix after the other:
//     indices: their Elias-Fano code (compress/kernels/sparse/elias_fano.h), whole words
//     values, f32 or bf16; an odd number of bf16 values is followed by two bytes of zero
// So a frame and all its parts are whole words, and begin at words where frames are gathered one
// behind another. Indices are decoded into scratch, those of all matrices before anything is
// written, for they may be damaged.
class TopKCodec final : public Codec {
 public:
  TopKCodec(const CodecSetting& setting,
            const std::vector<CodecPart>& parts,
            std::uint64_t /*seed*/,
            Device /*device*/)
      : Codec(slackline::frame_bytes(setting, parts)), setting_(setting), parts_(setting, parts) {
    std::size_t offset = sizeof(FrameHeader);
    for (const CodecPart& part : parts) {
      offsets_.push_back(offset);
      offset += payload_bytes(setting, part.shape);
    }
    SL_CHECK_EQ(offset, frame_bytes());
  }

  void encode(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& /*key*/,
              const Tensor& frame) override {
    check_operands(values, residual);
    SL_CHECK_EQ(frame.bytes(), frame_bytes());
    begin_frame(stream, frame, CodecKind::top_k, parts_.total());
    ArenaScope scope(stream.workspace());
    const Tensor scratch = scope.allocate(DType::u32, row(parts_.largest()));
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      const Tensor indices = scratch.rows(0, static_cast<std::int64_t>(parts_.kept(m)));
      top_k(stream, parts_.owed(stream, values, residual, m), indices, values_of(frame, m));
      elias_fano_encode(stream, indices, parts_.elements(m), words_of(frame, m));
      if (const Tensor rest = rest_of(frame, m); rest.num_elements() > 0) {
        fill_zero(stream, rest);
      }
    }
  }

  void settle(StreamView stream, const Tensor& frame, const Matrices& residual) override {
    if (residual.empty()) {
      return;
    }
    parts_.check("the residual of top_k", residual);
    ArenaScope scope(stream.workspace());
    const Tensor indices = open(stream, scope, frame);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      subtract_at(stream, values_of(frame, m), parts_.part(indices, m), residual[m]);
    }
  }

  void decode(StreamView stream,
              const Tensor& frame,
              const Matrices& out,
              bool accumulate) const override {
    parts_.check("the output of top_k", out);
    ArenaScope scope(stream.workspace());
    const Tensor indices = open(stream, scope, frame);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      if (!accumulate) {
        fill_zero(stream, out[m]);
      }
      scatter_at(stream,
                 {.kept = values_of(frame, m),
                  .indices = parts_.part(indices, m),
                  .out = out[m],
                  .mode = accumulate ? ScatterMode::add : ScatterMode::write});
    }
  }

  [[nodiscard]] CodecGradient gradient() const override { return CodecGradient::masked; }

  void mask(StreamView stream, const Tensor& frame, const Tensor& gradient) const override {
    SL_CHECK_EQ(gradient.num_elements(), parts_.elements(0));
    ArenaScope scope(stream.workspace());
    keep_only(stream, parts_.part(open(stream, scope, frame), 0), gradient);
  }

  // The indices, and one op's scratch at a time.
  [[nodiscard]] std::size_t workspace_bytes(const Workers& workers) const override {
    std::size_t bytes = keep_only_workspace_bytes(parts_.kept(0));
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      bytes = std::max({bytes,
                        top_k_workspace_bytes(parts_.elements(m), parts_.kept(m), workers),
                        elias_fano_workspace_bytes(code_of(m))});
    }
    return bytes + Arena::aligned_bytes(DType::u32, row(parts_.total()));
  }

 private:
  void check_operands(const Matrices& values, const Matrices& residual) const {
    parts_.check("the values of top_k", values);
    if (!residual.empty()) {
      parts_.check("the residual of top_k", residual);
    }
  }

  static Shape row(std::size_t count) { return {static_cast<std::int64_t>(count)}; }

  [[nodiscard]] EliasFano code_of(std::size_t matrix) const {
    return {.n = parts_.elements(matrix), .k = parts_.kept(matrix)};
  }

  // The code of a matrix's indices.
  [[nodiscard]] Tensor words_of(const Tensor& frame, std::size_t matrix) const {
    return frame_part(frame, offsets_[matrix], DType::u32, row(code_of(matrix).words()));
  }

  [[nodiscard]] std::size_t values_offset(std::size_t matrix) const {
    return offsets_[matrix] + code_of(matrix).words() * kWordBytes;
  }

  [[nodiscard]] Tensor values_of(const Tensor& frame, std::size_t matrix) const {
    return frame_part(frame, values_offset(matrix), setting_.values, row(parts_.kept(matrix)));
  }

  // The bytes that make a matrix's values whole words.
  [[nodiscard]] Tensor rest_of(const Tensor& frame, std::size_t matrix) const {
    const std::size_t bytes = parts_.kept(matrix) * size_of(setting_.values);
    return bytes_at(
        frame, values_offset(matrix) + bytes, (kWordBytes - bytes % kWordBytes) % kWordBytes);
  }

  // Checks a frame and returns the indices of all its matrices, in scratch.
  [[nodiscard]] Tensor open(StreamView stream, ArenaScope& scope, const Tensor& frame) const {
    open_frame(stream, frame, CodecKind::top_k, parts_.total(), frame_bytes());
    const Tensor indices = scope.allocate(DType::u32, row(parts_.total()));
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      const auto tag = static_cast<std::uint32_t>(m);
      const Tensor own = parts_.part(indices, m);
      elias_fano_decode(
          stream, words_of(frame, m), parts_.elements(m), {.tag = tag, .raise = refuse_count}, own);
      check_ascending(stream, own, parts_.elements(m), tag, refuse_index);
    }
    return indices;
  }

  [[noreturn]] static void refuse_count(const DeviceFault& fault) {
    throw CommError(fmt::format(
        "a top_k message is damaged: matrix {} has the indices of {} elements where {} are due",
        fault.words[2],
        fault.words[0],
        fault.words[1]));
  }

  [[noreturn]] static void refuse_index(const DeviceFault& fault) {
    const auto& [position, index, before, kept, elements, matrix, unused1, unused2] = fault.words;
    throw CommError(fmt::format(
        "a top_k message is damaged: matrix {}, position {} of {}, index {}{} where ascending "
        "indices below {} are due",
        matrix,
        position,
        kept,
        index,
        position == 0 ? "" : fmt::format(" after {}", before),
        elements));
  }

  CodecSetting setting_;
  KeptParts parts_;
  std::vector<std::size_t> offsets_;  // of each matrix in a frame
};

// The code of the indices, and the values.
std::size_t payload(const CodecSetting& setting, const MatrixShape& shape) {
  const std::size_t kept = kept_elements(setting, shape);
  const EliasFano code{.n = shape.num_elements(), .k = kept};
  const std::size_t value_words = (kept * size_of(setting.values) + kWordBytes - 1) / kWordBytes;
  return (code.words() + value_words) * kWordBytes;
}

// Share of normal values beyond `threshold` on both sides.
double share_beyond(double threshold) {
  return std::erfc(threshold / std::numbers::sqrt2);
}

double threshold_of(double share) {
  double low = 0.0;
  double high = 40.0;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (share_beyond(middle) > share ? low : high) = middle;
  }
  return low;
}

// The energy of normal values beyond t is their share and 2 t times their density at t.
double lost_below_threshold(double share) {
  const double t = threshold_of(share);
  const double density = std::exp(-0.5 * t * t) / std::sqrt(2.0 * std::numbers::pi);
  return std::sqrt(std::max(0.0, 1.0 - share - 2.0 * t * density));
}

double error(const CodecSetting& setting, const MatrixShape& /*shape*/) {
  return lost_below_threshold(setting.ratio);
}

}  // namespace

extern const CodecTraits kTopKTraits;
constexpr CodecTraits kTopKTraits = {.name = "top_k",
                                     .payload_bytes = payload,
                                     .expected_error = error,
                                     .finer = twice_kept,
                                     .read = read_kept_share,
                                     .keys = kept_share_keys,
                                     .strength = kept_share_text,
                                     .make = make_codec_of<TopKCodec>};

}  // namespace slackline
