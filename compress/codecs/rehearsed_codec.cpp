#include "compress/codecs/rehearsed_codec.h"

#include <cstddef>

#include "compress/codec_bytes.h"
#include "core/check.h"
#include "core/rehearsal_clock.h"
#include "core/tensor/buffer.h"

namespace slackline {

namespace {

class RehearsedCodec final : public Codec {
 public:
  RehearsedCodec(const CodecSetting& setting,
                 const std::vector<CodecPart>& parts,
                 const RehearsedSeconds& seconds)
      : Codec(slackline::frame_bytes(setting, parts)), seconds_(seconds) {
    if (adds(setting.kind)) {
      rounds_ = sum_rounds(setting, parts);
    }
    for (const SumRound& round : rounds_) {
      addends_.emplace_back("rehearsed addend", round.elements * round.element_bytes);
    }
  }

  void encode(StreamView /*stream*/,
              const Matrices& /*values*/,
              const Matrices& /*residual*/,
              const MessageKey& /*key*/,
              const Tensor& frame) override {
    SL_CHECK_EQ(frame.bytes(), frame_bytes());
    clock_.wait(seconds_.encode);
  }

  void settle(StreamView /*stream*/,
              const Tensor& /*frame*/,
              const Matrices& /*residual*/) override {}

  void decode(StreamView /*stream*/,
              const Tensor& frame,
              const Matrices& /*out*/,
              bool /*accumulate*/) const override {
    SL_CHECK_EQ(frame.bytes(), frame_bytes());
    clock_.wait(seconds_.decode);
  }

  [[nodiscard]] int sums() const override { return static_cast<int>(rounds_.size()); }

  [[nodiscard]] Tensor addend(int round) override {
    const auto i = static_cast<std::size_t>(round - 1);
    const bool wide = rounds_[i].element_bytes == size_of(DType::f32);
    return addends_[i].view(wide ? DType::f32 : DType::bf16,
                            {static_cast<std::int64_t>(rounds_[i].elements)});
  }

  void begin_sum(StreamView /*stream*/,
                 const Matrices& /*values*/,
                 const Matrices& /*residual*/,
                 const MessageKey& /*key*/) override {
    clock_.wait(seconds_of_round());
  }

  void next_sum(StreamView /*stream*/,
                const Matrices& /*values*/,
                const Matrices& /*residual*/) override {
    clock_.wait(seconds_of_round());
  }

  void finish_sum(StreamView /*stream*/,
                  const Matrices& /*out*/,
                  const Matrices& /*residual*/,
                  int /*ranks*/) override {
    clock_.wait(seconds_.decode);
  }

  [[nodiscard]] std::size_t workspace_bytes(const Workers& /*workers*/) const override { return 0; }

 private:
  [[nodiscard]] double seconds_of_round() const {
    return seconds_.encode / static_cast<double>(rounds_.size());
  }

  RehearsedSeconds seconds_;
  std::vector<SumRound> rounds_{};
  std::vector<Buffer> addends_{};  // of each round
  mutable RehearsalClock clock_{};
};

}  // namespace

std::unique_ptr<Codec> make_rehearsed_codec(const CodecSetting& setting,
                                            const std::vector<CodecPart>& parts,
                                            const RehearsedSeconds& seconds) {
  return std::make_unique<RehearsedCodec>(setting, parts, seconds);
}

}  // namespace slackline
