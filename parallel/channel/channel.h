#pragma once

#include <cstddef>
#include <vector>

#include "compress/codec_times.h"
#include "core/tensor/workers.h"
#include "parallel/channel/channel_state.h"
#include "parallel/channel/codec_maker.h"
#include "parallel/channel/codec_stream.h"
#include "parallel/channel/step_samples.h"
#include "parallel/plan/compression_plan.h"

namespace slackline {

// What Channels asks of each kind of its channels, between steps and while codecs rest. A channel
// that sends everything plain overrides nothing. Used by the rank's thread.
class Channel {
 public:
  Channel() = default;
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Makes the codecs of what is compressed from the next step on. State of what stays compressed in
  // the same way is kept.
  virtual void obey(const CompressionPlan& /*plan*/, const CodecMaker& /*maker*/) {}

  // Returns the scratch that a call of the codecs in force takes.
  [[nodiscard]] virtual std::size_t codec_workspace(const Workers& /*workers*/) const { return 0; }

  // Tells where codecs run, after each obey().
  virtual void run_codecs_on(const CodecStream& /*at*/) {}

  // Measures what is coded in the step that begins, until the samples are taken; what ranks brought
  // to sums then travels.
  virtual void begin_sample() {}

  virtual void take_samples(StepSamples& /*samples*/) {}

  // Adds what each codec did since the last time. What is timed belongs to transfers that have
  // ended.
  virtual void take_times(std::vector<CodecTimes>& /*times*/) {}

  // Adds views of the state of every codec and residual.
  virtual void add_state(const StateRanks& /*ranks*/, std::vector<ChannelState>& /*list*/) {}
};

}  // namespace slackline
