#include <utility>

#include "compress/codec_bytes.h"
#include "compress/codec_factories.h"
#include "compress/frame.h"
#include "core/buffer.h"
#include "core/kernels/accumulate.h"
#include "core/kernels/elementwise.h"

// A frame holds, after its header, the matrices in bf16. Messages add: the addend of a rank is its
// matrices in bf16, one after the other. The residual still holds what was rounded to make it, so
// that its error is found without a copy of the addend.
namespace slackline {

namespace {

constexpr std::uint32_t kBits = 16;

class CastCodec final : public Codec {
 public:
  explicit CastCodec(std::vector<CodecPart> parts)
      : parts_(std::move(parts)),
        frame_bytes_(slackline::frame_bytes({.kind = CodecKind::cast}, parts_)),
        addend_("bf16 addend of a sum", frame_bytes_ - sizeof(FrameHeader)) {}

  [[nodiscard]] std::size_t frame_bytes() const override { return frame_bytes_; }

  void encode(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& /*key*/,
              const Tensor& frame) override {
    SL_CHECK_EQ(frame.bytes(), frame_bytes_);
    narrow(stream, values, residual, begin_frame(frame, CodecKind::cast, kBits));
  }

  void settle(StreamView stream, const Tensor& frame, const Matrices& residual) override {
    for_each_matrix(opened(frame), residual, subtract, stream);
  }

  void decode(StreamView stream,
              const Tensor& frame,
              const Matrices& out,
              bool accumulate) const override {
    for_each_matrix(opened(frame), out, accumulate ? slackline::accumulate : cast, stream);
  }

  [[nodiscard]] int sums() const override { return 1; }

  [[nodiscard]] Tensor addend(int /*round*/) override {
    return addend_.view(DType::bf16,
                        {static_cast<std::int64_t>(addend_.bytes() / sizeof(BFloat16))});
  }

  void begin_sum(StreamView stream,
                 const Matrices& values,
                 const Matrices& residual,
                 const MessageKey& /*key*/) override {
    narrow(stream, values, residual, addend_.data());
  }

  void finish_sum(StreamView stream,
                  const Matrices& out,
                  const Matrices& residual,
                  int /*ranks*/) override {
    for_each_matrix(addend_.data(), out, cast, stream);
    for (const Tensor& error : residual) {
      keep_bf16_error(stream, error);
    }
  }

  [[nodiscard]] std::size_t workspace_bytes(int /*num_threads*/) const override { return 0; }

 private:
  using Op = void (*)(StreamView stream, const Tensor& from, const Tensor& to);

  std::byte* opened(const Tensor& frame) const {
    static_cast<void>(open_frame(frame, CodecKind::cast, kBits, frame_bytes_));
    return static_cast<std::byte*>(frame.raw()) + sizeof(FrameHeader);
  }

  // Rounds the values, added to the residual where there is one, to bf16.
  void narrow(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              std::byte* next) const {
    SL_CHECK_EQ(values.size(), parts_.size());
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      SL_CHECK_EQ(values[m].num_elements(), parts_[m].shape.num_elements());
      const Tensor* from = &values[m];
      if (!residual.empty()) {
        accumulate(stream, values[m], residual[m]);
        from = &residual[m];
      }
      const Tensor to(next, DType::bf16, from->shape());
      cast(stream, *from, to);
      next += to.bytes();
    }
  }

  // Runs op(stream, matrix in bf16, its counterpart in `matrices`).
  void for_each_matrix(std::byte* next, const Matrices& matrices, Op op, StreamView stream) const {
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      SL_CHECK_EQ(matrices[m].num_elements(), parts_.at(m).shape.num_elements());
      const Tensor from(next, DType::bf16, matrices[m].shape());
      op(stream, from, matrices[m]);
      next += from.bytes();
    }
  }

  std::vector<CodecPart> parts_;
  std::size_t frame_bytes_;
  Buffer addend_;
};

}  // namespace

std::unique_ptr<Codec> make_cast_codec(std::vector<CodecPart> parts) {
  return std::make_unique<CastCodec>(std::move(parts));
}

}  // namespace slackline
