#pragma once

#include <optional>
#include <string>

#include "compress/codec_setting.h"
#include "core/json_reader.h"

namespace slackline {

// Reads the keys of a codec setting from a section of a config or a plan: "codec", the key that
// carries its strength, which is required, what else that codec knows,
// "error_feedback" and "always". Keys of other codecs are unknown keys. Does not finish the
// section. What is absent is as in `defaults`.
[[nodiscard]] CodecSetting read_codec_setting(JsonReader& section,
                                              const CodecSetting& defaults = {});

// The same as JSON, defaults left out: {"codec": "low_rank", "rank": 16, "error_feedback": "lazy"}.
[[nodiscard]] std::string codec_setting_json(const CodecSetting& setting);

// Returns "null" where there is none.
[[nodiscard]] std::string codec_setting_json(const std::optional<CodecSetting>& setting);

}  // namespace slackline
