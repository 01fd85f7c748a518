#include "core/json_rules.h"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shown_text.h"

namespace slackline {

using Json = nlohmann::ordered_json;

namespace {

// Paths of many values begin with the same key, which a file may have made long.
std::string cut_key(std::string_view key) {
  constexpr std::size_t kLongest = 200;
  if (key.size() <= kLongest) {
    return std::string(key);
  }
  std::size_t end = kLongest;
  while (end > 0 &&
         (static_cast<unsigned char>(key[end]) & 0xC0U) == 0x80U) {  // inside a character
    --end;
  }
  return std::string(key.substr(0, end)) + "...";
}

}  // namespace

std::string join_path(std::string_view path, std::string_view key) {
  if (path.empty() || key.empty()) {
    return std::string(path.empty() ? cut_key(key) : path);
  }
  return fmt::format("{}.{}", path, cut_key(key));
}

std::string show(const Json& value) {
  return shown_value(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void refuse(std::string_view path, std::string_view rule, const Json& value) {
  throw ConfigError(fmt::format("{}: {}; got {}", path, rule, show(value)));
}

std::int64_t check_integer(const std::string& path, const IntegerRule& rule, const Json& value) {
  if (!value.is_number_integer()) {
    refuse(path, "expected an integer", value);
  }
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <=
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const auto number = fits ? value.get<std::int64_t>() : std::numeric_limits<std::int64_t>::max();
  if (!fits || number > rule.max) {
    refuse(path, fmt::format("must be at most {}", rule.max), value);
  }
  if (number < rule.min) {
    refuse(path, fmt::format("must be at least {}", rule.min), value);
  }
  return number;
}

double check_number(const std::string& path, const NumberRule& rule, const Json& value) {
  if (!value.is_number()) {
    refuse(path, "expected a number", value);
  }
  const auto number = value.get<double>();
  if (rule.exclusive_min && !(number > rule.min)) {
    refuse(path, fmt::format("must be greater than {}", rule.min), value);
  }
  if (!(number >= rule.min)) {
    refuse(path, fmt::format("must be at least {}", rule.min), value);
  }
  if (!(number <= rule.max)) {
    refuse(path, fmt::format("must be at most {}", rule.max), value);
  }
  return number;
}

std::string check_text(const std::string& path, const Json& value) {
  if (!value.is_string()) {
    refuse(path, "expected a string", value);
  }
  return value.get<std::string>();
}

}  // namespace slackline
