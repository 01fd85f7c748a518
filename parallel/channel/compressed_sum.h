#pragma once

#include <memory>
#include <vector>

#include "compress/codec.h"
#include "compress/codec_times.h"
#include "compress/residuals.h"
#include "core/comm/communicator.h"
#include "core/tensor/buffer.h"
#include "parallel/channel/channel_state.h"
#include "parallel/channel/codec_maker.h"
#include "parallel/channel/codec_stream.h"
#include "parallel/channel/gradient_sample.h"
#include "parallel/channel/sum_slices.h"
#include "parallel/plan/bucket_compression.h"

namespace slackline {

// Matrices of a gradient bucket that one codec compresses, and their sum over a group of ranks.
// Codecs whose messages add are summed on the way, round by round; frames of the others are
// gathered, decoded and added in rank order, or in two shots (SumWay). Each rank then has the same
// sums in its gradients; with `owners` that keep theirs it has its own rows alone, and the rest is
// undefined. Owns codec,
// residuals and messages, which the codecs' stream uses between begin() and finish(). All ranks of
// the group call alike, from one thread.
class CompressedSum {
 public:
  // `elements`: all that the sum works on.
  CompressedSum(const CodedSum& sum, const Tensor& elements, const CodecMaker& maker);

  // Submits everything: what is encoded, what travels and what is decoded.
  void begin(const CodecStream& at, Communicator& group, const MessageKey& key);

  // Whether the sums are in place. Does not block.
  [[nodiscard]] bool done() const;

  // Waits until the sums are in place.
  void finish();

  [[nodiscard]] const CodedSum& plan() const { return plan_; }

  [[nodiscard]] const Codec& codec() const { return *codec_; }

  // Views of what is owed of each matrix; none without error feedback.
  [[nodiscard]] const Codec::Matrices& owed() const { return residuals_.of(0); }

  // Adds views of what goes from sum to sum: what is owed of each matrix, and its codec's state.
  void add_state(const StateRanks& ranks, std::vector<ChannelState>& list) const;

  // Measures the sum of the step that begins, until the sample is taken.
  void begin_sample();

  [[nodiscard]] std::unique_ptr<GradientSample> take_sample() { return std::move(sample_); }

  // Returns what the codec's calls took in the sums since it was asked last.
  [[nodiscard]] CodecTimes take_times();

  // Takes over, matrix by matrix, what a sum that was given up owes, and where the settings are the
  // same the codec's state. For sums that are yet to begin.
  void adopt(CompressedSum& before);

 private:
  void begin_sums(const CodecStream& at, Communicator& group, const MessageKey& key);
  void begin_frames(const CodecStream& at, Communicator& group, const MessageKey& key);
  void begin_slices_of_sum(const CodecStream& at, Communicator& group, const MessageKey& key);
  void begin_slices_of_frames(const CodecStream& at, Communicator& group, const MessageKey& key);
  void begin_second_shot(const CodecStream& at, Communicator& group, const MessageKey& key);
  void encode(StreamView stream, const MessageKey& key, const Tensor& frame);
  void settle(StreamView stream, const Tensor& frame);
  [[nodiscard]] Tensor frame_of(int rank) const;
  void add_frames(StreamView stream);

  void take_raw_sample(StreamView stream);
  void take_sent_sample(StreamView stream);

  CodedSum plan_;
  std::unique_ptr<Codec> codec_;
  Residuals residuals_;
  Codec::Matrices gradients_;
  Buffer frames_;                        // of all ranks, where messages are gathered
  std::unique_ptr<SumSlices> slices_{};  // where each rank gets its own rows
  std::vector<Transfer> transfers_{};
  std::unique_ptr<GradientSample> sample_{};  // of the current step
  CallTimes encode_times_{};
  CallTimes decode_times_{};
};

// Copies parts of a row of f32 to where they stand one behind the other, to travel plain beside
// coded sums, or back.
void copy_packed(StreamView stream,
                 const std::vector<SummedPart>& parts,
                 const Tensor& row,
                 const Buffer& packed,
                 Packing packing);

}  // namespace slackline
