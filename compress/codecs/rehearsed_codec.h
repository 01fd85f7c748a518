#pragma once

#include <memory>
#include <vector>

#include "compress/codec.h"

namespace slackline {

// What a codec takes for a message, on the rehearsal device.
struct RehearsedSeconds {
  double encode = 0.0;  // of a sum: all rounds together
  double decode = 0.0;  // of one frame, or of the sum

  friend bool operator==(const RehearsedSeconds&, const RehearsedSeconds&) = default;
};

// Stands in for a codec on the rehearsal device: messages have its bytes and calls take these
// seconds; values are neither read nor written, and there is no state. Gradients pass unchanged.
[[nodiscard]] std::unique_ptr<Codec> make_rehearsed_codec(const CodecSetting& setting,
                                                          const std::vector<CodecPart>& parts,
                                                          const RehearsedSeconds& seconds);

}  // namespace slackline
