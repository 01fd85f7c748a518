#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/compressed_sum.h"
#include "parallel/channel/kept_messages.h"
#include "parallel/plan/bucket_compression.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// The sum of one gradient bucket over a group of ranks, at a step's end or in each of its passes.
// Whether it travels as it is, or in part coded with the rest packed, is known here alone: a plan
// says it, between steps. Owns codecs, residuals and messages; refers to sync plan, memory and
// group, which must outlive it. Used by the rank's thread; between begin() and finish() also by the
// codecs'. All ranks of the group call alike.
class SumChannel final : public Channel {
 public:
  struct Options {
    SyncOp op{};
    const SyncPlan* sync = nullptr;
    const RankPlan* rank = nullptr;
    Tensor gradient{};  // the elements that the op works on
    Communicator* group = nullptr;
    std::uint64_t seed = 0;
  };

  explicit SumChannel(const Options& options) : options_(options) {}

  // Codecs and matrices that stay keep their state. Of others each matrix that stays compressed
  // keeps what is owed to it, and its codec's state where its setting stays; the rest begins anew.
  void obey(const CompressionPlan& plan, const CodecMaker& maker) override;

  // Says where a step keeps what this rank brings to a sum that may be compressed, to the first one
  // of passes, in the order of `stream`.
  struct Keeping {
    StreamView stream;
    KeptMessages* messages = nullptr;
  };

  // Submits everything.
  void begin(const MessageKey& key, const std::optional<Keeping>& keeping);

  // Waits until this rank has the sum, or its part of it.
  void finish();

  [[nodiscard]] std::size_t codec_workspace(const Workers& workers) const override;

  void run_codecs_on(const CodecStream& at) override { codecs_ = at; }

  void begin_sample() override;
  void take_samples(StepSamples& samples) override;
  void take_times(std::vector<CodecTimes>& times) override;
  void add_state(const StateRanks& ranks, std::vector<ChannelState>& list) override;

 private:
  [[nodiscard]] const GradientBucket& bucket() const {
    return options_.sync->buckets[options_.op.bucket];
  }

  void keep(const Keeping& keeping) const;
  void begin_plain();
  void begin_coded(const MessageKey& key);

  Options options_;
  std::uint64_t step_ = 0;    // of the last coded message
  std::uint64_t number_ = 0;  // of it among those of its step
  std::optional<std::uint64_t> kept_step_{};
  std::optional<CodecStream> codecs_{};
  CodedBucket plan_{};                  // without sums where all travels as it is
  std::vector<CompressedSum> coded_{};  // of it
  Buffer packed_{};                     // what is plain beside coded sums
  Transfer transfer_{};                 // of what is plain
};

}  // namespace slackline
