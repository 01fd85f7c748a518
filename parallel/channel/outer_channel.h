#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "core/tensor/workers.h"
#include "parallel/channel/channel_state.h"
#include "parallel/channel/codec_maker.h"
#include "parallel/channel/codec_stream.h"
#include "parallel/channel/compressed_sum.h"
#include "parallel/channel/round_transfer.h"
#include "parallel/plan/coded_round.h"

namespace slackline {

// The differences of outer rounds on their way between workers: whether they travel as they are or
// coded is known here alone. Owns codecs, residuals and messages; refers to the rest, which must
// outlive it. Used by the rank's thread, and between begin() and finish() by the codecs'; all ranks
// of the group call alike. A round under way does not end without its codecs: before this goes it
// has to be waited for, or the world has failed and the codecs' thread is stopped.
class OuterChannel : public RoundTransfer {
 public:
  struct Options {
    Tensor differences{};              // of all this rank's shares, as a row
    std::vector<OuterShare> shares{};  // those that travel here, one behind the other
    const std::vector<OptimizerPiece>* pieces = nullptr;
    Communicator* group = nullptr;        // ranks at this place in all workers
    std::optional<CodecSetting> codec{};  // absent: rounds travel plain
    std::int64_t plain_steps = 0;         // rounds that end in these first steps travel plain
    CodecMaker codecs = make_real_codec;
    Workers workers{};
    std::uint64_t seed = 0;
  };

  explicit OuterChannel(const Options& options);
  ~OuterChannel() override = default;
  OuterChannel(const OuterChannel&) = delete;
  OuterChannel& operator=(const OuterChannel&) = delete;

  // Returns the scratch that a call of the codecs takes; 0: there are none.
  [[nodiscard]] std::size_t codec_workspace() const;

  // Tells where codecs run, before the first round. Rounds go on beside steps, so that is a stream
  // and a thread of rounds alone.
  void run_codecs_on(const CodecStream& at) { codecs_ = at; }

  // Submits the sum of differences, which are whole in the order of `stream`, of the round that
  // ends with `step`. What is sent plain whatever the codec leaves what is owed as it is.
  enum class Coding { by_codec, never };
  void begin(StreamView stream, std::int64_t step, Coding coding = Coding::by_codec);

  [[nodiscard]] bool is_under_way() const override { return is_under_way_; }

  [[nodiscard]] bool done() const override;
  void wait() override;

  // The differences are the sum over workers then, and codecs rest.
  void finish(StreamView stream) override;

  // Adds residuals, which are this worker's, and what codecs have learned, which all have alike.
  // Views. REQUIRES: no round is under way.
  void add_state(const StateRanks& ranks, std::vector<ChannelState>& list) const;

 private:
  void begin_plain();
  void begin_coded(StreamView stream, std::int64_t step);

  Options options_;
  CodedBucket plan_{};  // without sums where no codec is set
  std::vector<CompressedSum> coded_{};
  Buffer packed_{};  // what travels plain beside coded sums
  std::optional<CodecStream> codecs_{};
  std::vector<Transfer> transfers_{};
  bool is_under_way_ = false;
  bool is_coded_ = false;  // the round under way
};

}  // namespace slackline
