#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor/buffer.h"
#include "parallel/channel/channel.h"
#include "parallel/plan/coded_gather.h"

namespace slackline {

// Frames of weights under way, by the slot that they are decoded into: buckets that take turns in a
// slot take turns here.
class GatherFrames {
 public:
  explicit GatherFrames(Backing backing) : backing_(backing) {}

  // Makes room for so many bytes, if there is less. REQUIRES: nothing of the slot is under way.
  void reserve(std::size_t slot, std::size_t bytes);

  [[nodiscard]] Tensor row(std::size_t slot, std::size_t first, std::size_t bytes) const;

 private:
  Backing backing_;
  std::map<std::size_t, Buffer> buffers_{};
};

// The gathers of one bucket's weights before passes read them, where they may be coded. What
// travels plain is none of its business. Owns codecs; refers to the sync plan, the memory of
// weights and the groups, which must outlive it. Used by the rank's thread; between begin() and
// finish() also by the codecs'. All ranks of the groups call alike.
class GatherChannel final : public Channel {
 public:
  struct Options {
    const SyncPlan* plan = nullptr;
    std::size_t bucket = 0;
    std::vector<Tensor> own{};  // what this rank keeps, by segments, each a row
    Tensor whole{};             // all of the bucket, as a row: a slot
    std::size_t slot = 0;
    std::map<SyncGroup, Communicator*> groups{};
    std::shared_ptr<GatherFrames> frames{};
  };

  explicit GatherChannel(const Options& options) : options_(options) {}

  void obey(const CompressionPlan& plan, const CodecMaker& maker) override;

  // Whether it has to carry the weights under the plan in force.
  [[nodiscard]] bool is_coded() const { return coded_.has_value(); }

  // Submits everything. REQUIRES: is_coded(); the slot is free.
  void begin(const MessageKey& key);

  // Waits until the slot has what all frames decode to.
  void finish();

  [[nodiscard]] std::size_t codec_workspace(const Workers& workers) const override;

  void run_codecs_on(const CodecStream& at) override { codecs_ = at; }

  void take_times(std::vector<CodecTimes>& times) override;

 private:
  // A segment's frames, from one on.
  [[nodiscard]] Tensor frames(std::size_t segment, std::size_t first, std::size_t count) const;
  void encode(StreamView stream, const MessageKey& key, std::size_t segment);
  void decode(StreamView stream, std::size_t segment);

  Options options_;
  std::optional<CodedGather> coded_{};
  std::map<std::size_t, std::unique_ptr<Codec>> by_length_{};  // of shares
  std::optional<CodecStream> codecs_{};
  std::vector<Transfer> transfers_{};
  CallTimes encode_times_{};
  CallTimes decode_times_{};
};

}  // namespace slackline
