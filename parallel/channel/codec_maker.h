#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "compress/codec.h"
#include "core/tensor/device.h"

namespace slackline {

// A channel needs a codec for this: one message, or one rank's part of a sum.
struct CodecRequest {
  CodecSetting setting{};
  std::vector<CodecPart> parts{};
  std::vector<std::int64_t> shape{};  // as in CodecTimes
  std::uint64_t seed = 0;
  Device device = Device::cpu;
};

// Makes what a rank's channels code with. A rehearsed step has codecs of its own
// (parallel/step/step_rehearsal.h); channels cannot tell.
using CodecMaker = std::function<std::unique_ptr<Codec>(const CodecRequest& request)>;

// The maker of steps that compute: the codec that the setting names.
[[nodiscard]] inline std::unique_ptr<Codec> make_real_codec(const CodecRequest& request) {
  return make_codec(request.setting, request.parts, request.seed, request.device);
}

}  // namespace slackline
