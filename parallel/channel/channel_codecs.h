#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compress/codec.h"
#include "core/tensor/device.h"

namespace slackline {

// Makes what a rank's channels code with. A rehearsed step has codecs of its own
// (parallel/step/step_rehearsal.h); channels cannot tell.
class ChannelCodecs {
 public:
  // One message, or one rank's part of a sum.
  struct Coded {
    CodecSetting setting{};
    std::vector<CodecPart> parts{};
    std::vector<std::int64_t> shape{};  // as in CodecTimes
    std::uint64_t seed = 0;
    Device device = Device::cpu;
  };

  ChannelCodecs() = default;
  virtual ~ChannelCodecs() = default;
  ChannelCodecs(const ChannelCodecs&) = delete;
  ChannelCodecs& operator=(const ChannelCodecs&) = delete;

  [[nodiscard]] virtual std::unique_ptr<Codec> make(const Coded& coded) const {
    return make_codec(coded.setting, coded.parts, coded.seed, coded.device);
  }
};

}  // namespace slackline
