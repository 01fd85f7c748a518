#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace slackline {

// Why a text is not strict JSON. Callers turn it into a ConfigError or FileError that names the
// source.
class JsonSyntaxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses one JSON value (RFC 8259, UTF-8) and is stricter than the library's own parser: refuses
// duplicate keys, NUL bytes, numbers beyond a double and nesting deeper than kMaxJsonDepth. Keys
// keep their order. Messages give line and column of a syntax error, or the dotted path.
// Callers include <nlohmann/json.hpp> themselves; it costs seconds a file, so they are few.
[[nodiscard]] nlohmann::ordered_json parse_strict_json(std::string_view text);

// The same of a file's text, which has to be one object. Throws FileError, whose message `source`
// starts.
[[nodiscard]] nlohmann::ordered_json parse_strict_object(std::string_view text,
                                                         const std::string& source);

inline constexpr int kMaxJsonDepth = 100;

}  // namespace slackline
