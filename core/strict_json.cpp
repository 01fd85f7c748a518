#include "core/strict_json.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shown_text.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

std::string line_and_column(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return fmt::format("line {}, column {}", line, column);
}

// The library writes "[json.exception...] parse error at line 1, column 2: what went wrong".
std::string without_prefix(std::string_view message) {
  for (const std::string_view mark : {": ", "] "}) {
    const std::size_t found = message.find(mark);
    if (found != std::string_view::npos) {
      return std::string(message.substr(found + mark.size()));
    }
  }
  return std::string(message);
}

// Builds the value from the parser's events. The library's own builder keeps the last of two equal
// keys and looks every key up linearly; this one remembers the keys of each open object.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }

  bool boolean(bool value) override { return add(value); }

  // -0 alone is 0 with a sign, and no integer.
  bool number_integer(number_integer_t value) override {
    return value == 0 ? add(-0.0) : add(value);
  }

  bool number_unsigned(number_unsigned_t value) override { return add(value); }

  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }

  bool string(string_t& value) override { return add(std::move(value)); }

  bool binary(binary_t& value) override { return add(std::move(value)); }

  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }

  bool end_object() override { return close(); }

  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }

  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.key = name;
    if (!level.keys.insert(name).second) {
      throw JsonSyntaxError(path() + ": key given twice");
    }
    return true;
  }

  bool parse_error(std::size_t position,
                   const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;          // the library's number for it
    constexpr std::size_t kLongestProblem = 200;  // bytes; it quotes what it could not read
    const std::size_t offset = position == 0 ? 0 : position - 1;
    throw JsonSyntaxError(line_and_column(text_, offset) + ": " +
                          (error.id == kNumberOverflow
                               ? "number out of range: " + shown_value(token)
                               : shown_value(without_prefix(error.what()), kLongestProblem)));
  }

 private:
  struct Level {
    Json* container;
    std::string key;  // of the member being read
    std::unordered_set<std::string> keys;
  };

  bool add(Json value) {
    append(std::move(value));
    return true;
  }

  bool open(Json container) {
    Json* added = append(std::move(container));
    levels_.push_back({added, {}, {}});
    if (levels_.size() > static_cast<std::size_t>(kMaxJsonDepth)) {
      throw JsonSyntaxError(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    }
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  // Pointers to open containers stay valid: nothing is appended beside one while it is open.
  Json* append(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& container = *levels_.back().container;
    if (container.is_array()) {
      container.push_back(std::move(value));
      return &container.back();
    }
    auto& members = container.get_ref<Json::object_t&>();
    members.push_back({levels_.back().key, std::move(value)});
    return &members.back().second;
  }

  [[nodiscard]] std::string path() const {
    std::string path;
    for (const Level& level : levels_) {
      const std::string name = level.container->is_array()
                                   ? std::to_string(level.container->size() - 1)
                                   : shown_value(level.key);
      path += (path.empty() ? "" : ".") + name;
    }
    return path;
  }

  std::string_view text_;
  Json root_;
  std::vector<Level> levels_;
};

}  // namespace

nlohmann::ordered_json parse_strict_json(std::string_view text) {
  // The library takes a NUL byte for the end of the text and would not look behind it.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    throw JsonSyntaxError(line_and_column(text, nul) + ": NUL byte");
  }
  Builder builder(text);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

nlohmann::ordered_json parse_strict_object(std::string_view text, const std::string& source) {
  try {
    Json json = parse_strict_json(text);
    if (!json.is_object()) {
      throw FileError(source + ": must hold a JSON object");
    }
    return json;
  } catch (const JsonSyntaxError& error) {
    throw FileError(fmt::format("{}: not JSON: {}", source, error.what()));
  }
}

}  // namespace slackline
