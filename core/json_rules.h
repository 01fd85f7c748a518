#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "core/json_reader.h"

namespace slackline {

// How JsonReader checks one value and words a refusal. Private to it.

// "optimizer.lr" from "optimizer" and "lr"; either may be empty. A key of more than 200 bytes is
// cut.
[[nodiscard]] std::string join_path(std::string_view path, std::string_view key);

// A value as it ends a message: as JSON, long ones cut.
[[nodiscard]] std::string show(const nlohmann::ordered_json& value);

// Throws ConfigError "<path>: <rule>; got <value>".
[[noreturn]] void refuse(std::string_view path,
                         std::string_view rule,
                         const nlohmann::ordered_json& value);

// The value, if it is of the type and inside the rule's range. 1.0 is no integer; 1 is a number.
[[nodiscard]] std::int64_t check_integer(const std::string& path,
                                         const IntegerRule& rule,
                                         const nlohmann::ordered_json& value);
[[nodiscard]] double check_number(const std::string& path,
                                  const NumberRule& rule,
                                  const nlohmann::ordered_json& value);
[[nodiscard]] std::string check_text(const std::string& path, const nlohmann::ordered_json& value);

}  // namespace slackline
