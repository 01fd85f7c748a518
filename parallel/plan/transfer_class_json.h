#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "parallel/plan/codec_errors.h"

namespace slackline {

// The keys "site", "stage" and "phase" of a plan's rows and of a cost file's errors.
[[nodiscard]] schedule::TransferClass read_transfer_class(JsonReader& section);

// Written as members of an object: "site": "data_gradient", "stage": 0, "phase": "step".
[[nodiscard]] std::string transfer_class_members(const schedule::TransferClass& members);

// Reads a list of objects with these keys, "codec" and "relative_error". Absent: none.
[[nodiscard]] std::vector<CodecError> read_codec_errors(JsonReader& document, std::string_view key);

// Such an object.
[[nodiscard]] std::string codec_error_text(const CodecError& error);

}  // namespace slackline
