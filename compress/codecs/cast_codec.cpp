#include <cstdint>
#include <utility>
#include <vector>

#include "compress/codec_bytes.h"
#include "compress/codec_traits.h"
#include "compress/frame.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/buffer.h"

// A frame holds, after its header, the matrices in bf16. Messages add: the addend of a rank is its
// matrices in bf16, one after the other. The residual still holds what was rounded to make it, so
// that its error is found without a copy of the addend.
namespace slackline {

namespace {

constexpr std::uint32_t kBits = 16;

class CastCodec final : public Codec {
 public:
  CastCodec(const CodecSetting& setting,
            std::vector<CodecPart> parts,
            std::uint64_t /*seed*/,
            Device device)
      : Codec(slackline::frame_bytes(setting, parts)), parts_(std::move(parts)), device_(device) {}

  void encode(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& /*key*/,
              const Tensor& frame) override {
    SL_CHECK_EQ(frame.bytes(), frame_bytes());
    begin_frame(stream, frame, CodecKind::cast, kBits);
    narrow(stream, values, residual, payload_of(frame));
  }

  void settle(StreamView stream, const Tensor& frame, const Matrices& residual) override {
    for_each_matrix(opened(stream, frame), residual, subtract, stream);
  }

  void decode(StreamView stream,
              const Tensor& frame,
              const Matrices& out,
              bool accumulate) const override {
    for_each_matrix(opened(stream, frame), out, accumulate ? slackline::accumulate : cast, stream);
  }

  [[nodiscard]] int sums() const override { return 1; }

  // Codecs that send frames alone have none.
  [[nodiscard]] Tensor addend(int /*round*/) override {
    if (addend_.bytes() == 0) {
      addend_ =
          Buffer("bf16 addend of a sum", frame_bytes() - sizeof(FrameHeader), backing_of(device_));
    }
    return addend_.view(DType::bf16, row_of(addend_.bytes()));
  }

  void begin_sum(StreamView stream,
                 const Matrices& values,
                 const Matrices& residual,
                 const MessageKey& /*key*/) override {
    narrow(stream, values, residual, addend(1));
  }

  void finish_sum(StreamView stream,
                  const Matrices& out,
                  const Matrices& residual,
                  int /*ranks*/) override {
    for_each_matrix(addend(1), out, cast, stream);
    for (const Tensor& error : residual) {
      keep_bf16_error(stream, error);
    }
  }

  [[nodiscard]] std::size_t workspace_bytes(const Workers& /*workers*/) const override { return 0; }

 private:
  using Op = void (*)(StreamView stream, const Tensor& from, const Tensor& to);

  static Shape row_of(std::size_t bytes) {
    return {static_cast<std::int64_t>(bytes / sizeof(BFloat16))};
  }

  // All matrices of a frame, one after the other.
  [[nodiscard]] Tensor payload_of(const Tensor& frame) const {
    return frame_part(
        frame, sizeof(FrameHeader), DType::bf16, row_of(frame_bytes() - sizeof(FrameHeader)));
  }

  [[nodiscard]] Tensor opened(StreamView stream, const Tensor& frame) const {
    open_frame(stream, frame, CodecKind::cast, kBits, frame_bytes());
    return payload_of(frame);
  }

  // The part of a matrix; `first` moves on behind it.
  [[nodiscard]] Tensor part(const Tensor& all, std::size_t matrix, std::int64_t& first) const {
    const auto count = static_cast<std::int64_t>(parts_.at(matrix).shape.num_elements());
    first += count;
    return all.rows(first - count, first);
  }

  // Rounds the values, added to the residual where there is one, to bf16.
  void narrow(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const Tensor& all) const {
    SL_CHECK_EQ(values.size(), parts_.size());
    std::int64_t first = 0;
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      const Tensor to = part(all, m, first);
      const Tensor* from = &values[m];
      if (!residual.empty()) {
        accumulate(stream, values[m], residual[m]);
        from = &residual[m];
      }
      cast(stream, from->reshaped(to.shape()), to);
    }
  }

  // Runs op(stream, matrix in bf16, its counterpart in `matrices`).
  void for_each_matrix(const Tensor& all,
                       const Matrices& matrices,
                       Op op,
                       StreamView stream) const {
    std::int64_t first = 0;
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const Tensor from = part(all, m, first);
      op(stream, from, matrices[m].reshaped(from.shape()));
    }
  }

  std::vector<CodecPart> parts_;
  Device device_;
  Buffer addend_;
};

std::size_t payload(const CodecSetting& /*setting*/, const MatrixShape& shape) {
  return shape.num_elements() * size_of(DType::bf16);
}

std::vector<SumRound> rounds(const CodecSetting& /*setting*/, const std::vector<CodecPart>& parts) {
  SumRound round{.element_bytes = size_of(DType::bf16)};
  for (const CodecPart& part : parts) {
    round.elements += part.shape.num_elements();
  }
  return {round};
}

// Measured on normal values.
double error(const CodecSetting& /*setting*/, const MatrixShape& /*shape*/) {
  return 0.0017;
}

}  // namespace

extern const CodecTraits kCastTraits;
constexpr CodecTraits kCastTraits = {.name = "cast",
                                     .cuts_by_rows = true,
                                     .rounds = true,
                                     .payload_bytes = payload,
                                     .sum_rounds = rounds,
                                     .expected_error = error,
                                     .make = make_codec_of<CastCodec>};

}  // namespace slackline
