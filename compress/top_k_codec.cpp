
#include <fmt/format.h>

#include "compress/codec_bytes.h"
#include "compress/codec_factories.h"
#include "compress/frame.h"
#include "compress/kept_parts.h"
#include "core/arena.h"
#include "core/check.h"
#include "core/error.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/message_checks.h"
#include "core/kernels/sparse.h"
#include "core/kernels/top_k.h"

namespace slackline {

namespace {

constexpr std::size_t kIndexBytes = sizeof(std::uint32_t);

// Sends the elements largest in magnitude: their indices, ascending in each matrix, and their
// values. A frame is
//   header (parameter: kept elements of the message)
//   indices, u32, of all matrices one behind another
//   values, f32 or bf16, likewise
// Indices stand before all values so that both are aligned whatever is kept. Only a frame that
// itself begins between two words (bf16 frames gathered one behind another) has indices that are
// not; these pass through scratch.
class TopKCodec final : public Codec {
 public:
  TopKCodec(const CodecSetting& setting, const std::vector<CodecPart>& parts)
      : setting_(setting),
        parts_(setting, parts),
        frame_bytes_(slackline::frame_bytes(setting, parts)) {}

  [[nodiscard]] std::size_t frame_bytes() const override { return frame_bytes_; }

  void encode(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& /*key*/,
              const Tensor& frame) override {
    check_operands(values, residual);
    SL_CHECK_EQ(frame.bytes(), frame_bytes_);
    begin_frame(stream, frame, CodecKind::top_k, parameter());
    ArenaScope scope(stream.workspace());
    const Tensor indices = aligned_indices(scope, frame);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      top_k(stream,
            parts_.owed(stream, values, residual, m),
            parts_.part(indices, m),
            parts_.part(values_of(frame), m));
    }
    if (indices.raw() != indices_of(frame).raw()) {
      cast(stream, indices, indices_of(frame));
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
      subtract_at(stream, parts_.part(values_of(frame), m), parts_.part(indices, m), residual[m]);
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
                 {.kept = parts_.part(values_of(frame), m),
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

  [[nodiscard]] std::size_t workspace_bytes(const Workers& workers) const override {
    std::size_t bytes = keep_only_workspace_bytes(parts_.kept(0));
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      bytes = std::max(bytes, top_k_workspace_bytes(parts_.elements(m), parts_.kept(m), workers));
    }
    return bytes + Arena::aligned_bytes(DType::u32, {static_cast<std::int64_t>(parts_.total())});
  }

 private:
  [[nodiscard]] std::uint32_t parameter() const {
    return static_cast<std::uint32_t>(parts_.total());
  }

  void check_operands(const Matrices& values, const Matrices& residual) const {
    parts_.check("the values of top_k", values);
    if (!residual.empty()) {
      parts_.check("the residual of top_k", residual);
    }
  }

  [[nodiscard]] Tensor indices_of(const Tensor& frame) const {
    return frame_part(frame, sizeof(FrameHeader), DType::u32, row());
  }

  [[nodiscard]] Tensor values_of(const Tensor& frame) const {
    const std::size_t offset = sizeof(FrameHeader) + parts_.total() * kIndexBytes;
    return frame_part(frame, offset, setting_.values, row());
  }

  [[nodiscard]] Shape row() const { return {static_cast<std::int64_t>(parts_.total())}; }

  // Where a frame's indices are read and written: in place or in scratch.
  [[nodiscard]] Tensor aligned_indices(ArenaScope& scope, const Tensor& frame) const {
    const Tensor indices = indices_of(frame);
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(indices.raw()) % kIndexBytes == 0;
    return is_aligned ? indices : scope.allocate(DType::u32, indices.shape());
  }

  // Checks a frame and returns its indices.
  [[nodiscard]] Tensor open(StreamView stream, ArenaScope& scope, const Tensor& frame) const {
    open_frame(stream, frame, CodecKind::top_k, parameter(), frame_bytes_);
    const Tensor indices = aligned_indices(scope, frame);
    if (indices.raw() != indices_of(frame).raw()) {
      cast(stream, indices_of(frame), indices);
    }
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      check_ascending(stream,
                      parts_.part(indices, m),
                      parts_.elements(m),
                      static_cast<std::uint32_t>(m),
                      refuse_index);
    }
    return indices;
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
  std::size_t frame_bytes_;
};

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): as of all codecs
std::unique_ptr<Codec> make_top_k_codec(const CodecSetting& setting, std::vector<CodecPart> parts) {
  return std::make_unique<TopKCodec>(setting, parts);
}

}  // namespace slackline
