#include <cmath>
#include <vector>

#include "compress/codec_bytes.h"
#include "compress/codec_keys.h"
#include "compress/codec_traits.h"
#include "compress/frame.h"
#include "compress/kept_parts.h"
#include "compress/kernels/message_checks.h"
#include "compress/kernels/sparse/random_sample.h"
#include "compress/kernels/sparse/sparse.h"
#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/rng.h"
#include "core/tensor/arena.h"
#include "core/tensor/buffer.h"

namespace slackline {

namespace {

constexpr std::size_t kPayloadOffset = sizeof(FrameHeader) + sizeof(MessageWords);

// Sends a uniform sample of the elements, drawn anew for every message from (seed, name of
// the matrix, step, micro-batch). Every rank draws the same, so only values travel, and messages
// add. A frame is
//   header (parameter: kept elements of the message)
//   step, micro-batch, u64
//   values, f32 or bf16, of all matrices one behind another, in the order of the sample
// Without error feedback the receiver multiplies by elements / kept elements, which makes the
// expectation over samples the message itself. With error feedback it does not: what is not sent
// now is sent later.
class RandomKCodec final : public Codec {
 public:
  RandomKCodec(const CodecSetting& setting,
               const std::vector<CodecPart>& parts,
               std::uint64_t seed,
               Device device)
      : Codec(slackline::frame_bytes(setting, parts)),
        setting_(setting),
        parts_(setting, parts),
        sum_name_("random_k sum of " + parts.front().name),
        device_(device),
        sum_words_("random_k key", sizeof(MessageWords), backing_of(device)) {
    streams_.reserve(parts.size());
    for (const CodecPart& part : parts) {
      streams_.push_back(philox_key(seed, "random_k/" + part.name));
    }
  }

  void encode(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& key,
              const Tensor& frame) override {
    SL_CHECK_EQ(frame.bytes(), frame_bytes());
    begin_frame(stream, frame, CodecKind::random_k, parts_.total());
    write_words(stream, words_of(frame), words_of(key));
    gather(stream, values, residual, words_of(frame), values_of(frame));
  }

  void settle(StreamView stream, const Tensor& frame, const Matrices& residual) override {
    if (residual.empty()) {
      return;
    }
    parts_.check("the residual of random_k", residual);
    const Tensor words = open(stream, frame);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      ArenaScope scope(stream.workspace());
      const Tensor indices = draw(stream, scope, words, m);
      subtract_at(stream, parts_.part(values_of(frame), m), indices, residual[m]);
    }
  }

  void decode(StreamView stream,
              const Tensor& frame,
              const Matrices& out,
              bool accumulate) const override {
    parts_.check("the output of random_k", out);
    const Tensor words = open(stream, frame);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      ArenaScope scope(stream.workspace());
      const Tensor indices = draw(stream, scope, words, m);
      scatter(stream, parts_.part(values_of(frame), m), indices, m, out[m], accumulate);
    }
  }

  [[nodiscard]] int sums() const override { return 1; }

  // Codecs that send frames alone have none.
  [[nodiscard]] Tensor addend(int /*round*/) override {
    take_memory();
    return sum_tensor();
  }

  void begin_sum(StreamView stream,
                 const Matrices& values,
                 const Matrices& residual,
                 const MessageKey& key) override {
    take_memory();
    write_words(stream, sum_words(), words_of(key));
    gather(stream, values, residual, sum_words(), sum_tensor());
  }

  void finish_sum(StreamView stream,
                  const Matrices& out,
                  const Matrices& residual,
                  int /*ranks*/) override {
    parts_.check("the output of random_k", out);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      ArenaScope scope(stream.workspace());
      const Tensor indices = draw(stream, scope, sum_words(), m);
      scatter(stream, parts_.part(sum_tensor(), m), indices, m, out[m], false);
      if (!residual.empty()) {
        // The residual still holds what this rank's addends were rounded from.
        const Tensor own = scope.allocate(setting_.values, indices.shape());
        gather_at(stream, residual[m], indices, own);
        subtract_at(stream, own, indices, residual[m]);
      }
    }
  }

  [[nodiscard]] CodecGradient gradient() const override { return CodecGradient::masked; }

  void mask(StreamView stream, const Tensor& frame, const Tensor& gradient) const override {
    SL_CHECK_EQ(gradient.num_elements(), parts_.elements(0));
    ArenaScope scope(stream.workspace());
    keep_only(stream, draw(stream, scope, open(stream, frame), 0), gradient);
    if (setting_.error_feedback == ErrorFeedback::none) {
      scale(stream, gradient, factor(0), gradient);
    }
  }

  [[nodiscard]] std::size_t workspace_bytes(const Workers& /*workers*/) const override {
    const Shape largest{static_cast<std::int64_t>(parts_.largest())};
    return Arena::aligned_bytes(DType::u32, largest) + keep_only_workspace_bytes(parts_.largest());
  }

 private:
  [[nodiscard]] Tensor values_of(const Tensor& frame) const {
    return frame_part(
        frame, kPayloadOffset, setting_.values, {static_cast<std::int64_t>(parts_.total())});
  }

  // The receiver multiplies a matrix by this, and the gradient that goes back as well.
  [[nodiscard]] float factor(std::size_t matrix) const {
    return setting_.error_feedback == ErrorFeedback::none
               ? static_cast<float>(static_cast<double>(parts_.elements(matrix)) /
                                    static_cast<double>(parts_.kept(matrix)))
               : 1.0F;
  }

  // Step and micro-batch, u64.
  [[nodiscard]] static MessageWords words_of(const MessageKey& key) {
    return {low_word(key.step),
            high_word(key.step),
            low_word(key.micro_batch),
            high_word(key.micro_batch)};
  }

  // Where a frame has them.
  [[nodiscard]] static Tensor words_of(const Tensor& frame) {
    return bytes_at(frame, sizeof(FrameHeader), sizeof(MessageWords));
  }

  void take_memory() {
    if (sum_.bytes() == 0) {
      sum_ = Buffer(sum_name_, parts_.total() * size_of(setting_.values), backing_of(device_));
    }
  }

  // The words of the message that is being added up.
  [[nodiscard]] Tensor sum_words() const {
    return sum_words_.view(DType::u8, {sizeof(MessageWords)});
  }

  [[nodiscard]] Tensor sum_tensor() const {
    return sum_.view(setting_.values, {static_cast<std::int64_t>(parts_.total())});
  }

  [[nodiscard]] Tensor open(StreamView stream, const Tensor& frame) const {
    open_frame(stream, frame, CodecKind::random_k, parts_.total(), frame_bytes());
    return words_of(frame);
  }

  // The indices that a message keeps of a matrix, in scratch.
  [[nodiscard]] Tensor draw(StreamView stream,
                            ArenaScope& scope,
                            const Tensor& words,
                            std::size_t matrix) const {
    const Tensor indices =
        scope.allocate(DType::u32, {static_cast<std::int64_t>(parts_.kept(matrix))});
    const SampleKey key{.key = streams_[matrix], .words = words};
    random_sample(stream, key, parts_.elements(matrix), indices);
    return indices;
  }

  void gather(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const Tensor& words,
              const Tensor& message) const {
    parts_.check("the values of random_k", values);
    if (!residual.empty()) {
      parts_.check("the residual of random_k", residual);
    }
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      ArenaScope scope(stream.workspace());
      const Tensor indices = draw(stream, scope, words, m);
      const Tensor owed = parts_.owed(stream, values, residual, m);
      gather_at(stream, owed, indices, parts_.part(message, m));
      tell_non_finite(stream,
                      owed,
                      residual.empty() ? NonFinite::keep : NonFinite::clear,
                      parts_.part(message, m));
    }
  }

  void scatter(StreamView stream,
               const Tensor& kept,
               const Tensor& indices,
               std::size_t matrix,
               const Tensor& out,
               bool accumulate) const {
    if (!accumulate) {
      fill_zero(stream, out);
    }
    scatter_at(stream,
               {.kept = kept,
                .indices = indices,
                .out = out,
                .scale = factor(matrix),
                .mode = accumulate ? ScatterMode::add : ScatterMode::write});
  }

  CodecSetting setting_;
  KeptParts parts_;
  std::vector<PhiloxKey> streams_;  // one a matrix
  std::string sum_name_;
  Device device_;
  Buffer sum_;        // this rank's addends, then the sum
  Buffer sum_words_;  // of the message that is being added up
};

std::size_t payload(const CodecSetting& setting, const MatrixShape& shape) {
  return kept_elements(setting, shape) * size_of(setting.values);
}

std::vector<SumRound> rounds(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  SumRound round{.element_bytes = size_of(setting.values)};
  for (const CodecPart& part : parts) {
    round.elements += kept_elements(setting, part.shape);
  }
  return {round};
}

// Without error feedback what is kept is scaled by 1 / p, so that it is right on average: it is off
// by p (1 / p - 1)^2 of the squares, and what is left out by 1 - p of them.
double error(const CodecSetting& setting, const MatrixShape& /*shape*/) {
  const double p = setting.ratio;
  return std::sqrt(setting.error_feedback == ErrorFeedback::none ? (1.0 - p) / p : 1.0 - p);
}

}  // namespace

extern const CodecTraits kRandomKTraits;
constexpr CodecTraits kRandomKTraits = {.name = "random_k",
                                        .key_bytes = sizeof(MessageWords),
                                        .payload_bytes = payload,
                                        .sum_rounds = rounds,
                                        .expected_error = error,
                                        .finer = twice_kept,
                                        .read = read_kept_share,
                                        .keys = kept_share_keys,
                                        .strength = kept_share_text,
                                        .make = make_codec_of<RandomKCodec>};

}  // namespace slackline
