#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace slackline {

// More than any config, plan or cost file has.
inline constexpr std::size_t kMostJsonBytes = std::size_t{64} << 20U;

// Rules for one key. Without a default the key is required.
struct IntegerRule {
  std::optional<std::int64_t> default_value{};
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

struct NumberRule {
  std::optional<double> default_value{};
  double min = -std::numeric_limits<double>::max();
  double max = std::numeric_limits<double>::max();
  bool exclusive_min = false;
};

// One JSON object of a config while it is being read. Folders read their own section:
//
//   ModelConfig read_model_config(JsonReader section) {
//     config.layers = section.integer("layers", {.min = 1});
//     ...
//     section.finish();
//   }
//
// Every violation throws ConfigError with the dotted path (as in --set), the rule, the nearest
// valid choice where there is one, and the value given. Copies share state, so a section may be
// passed by value. Not thread-safe.
class JsonReader {
 public:
  // Parses a whole document. `source` (a file name) starts syntax errors, which give line and
  // column. Duplicate keys, anything but an object at the top, NaN and numbers that overflow are
  // refused. Comments are not JSON.
  static JsonReader parse(std::string_view text, const std::string& source);
  // Reads the file; a missing or unreadable one is a ConfigError too.
  static JsonReader parse_file(const std::string& path);

  // Applies one `--set a.b=c`: c is JSON, or a plain string where it does not parse. Creates
  // objects on the way; list elements are addressed by number (data.train.0.path), the number
  // behind the last one appends. REQUIRES: nothing was read yet.
  void set(std::string_view assignment);

  // Present and not null: a null is the same as an absent key, except for number_or_null().
  [[nodiscard]] bool has(std::string_view key) const;
  // Present and an object.
  [[nodiscard]] bool has_section(std::string_view key) const;
  // Names of this object's keys in the document's order, for objects used as maps.
  [[nodiscard]] std::vector<std::string> keys() const;

  [[nodiscard]] std::int64_t integer(std::string_view key, const IntegerRule& rule = {});
  [[nodiscard]] double number(std::string_view key, const NumberRule& rule = {});
  // A number that a null turns off; an absent key reads as `when_absent`.
  [[nodiscard]] std::optional<double> number_or_null(std::string_view key,
                                                     const NumberRule& rule,
                                                     std::optional<double> when_absent);
  [[nodiscard]] bool boolean(std::string_view key, std::optional<bool> default_value = {});
  [[nodiscard]] std::string string(std::string_view key,
                                   const std::optional<std::string>& default_value = {});
  [[nodiscard]] std::vector<std::int64_t> integers(
      std::string_view key,
      const IntegerRule& each,
      const std::optional<std::vector<std::int64_t>>& default_value = {});
  [[nodiscard]] std::vector<double> numbers(
      std::string_view key,
      const NumberRule& each,
      const std::optional<std::vector<double>>& default_value = {});
  [[nodiscard]] std::vector<std::string> strings(
      std::string_view key, const std::optional<std::vector<std::string>>& default_value = {});

  // One of a list of names; returns its position. An unknown name gets the nearest as a hint.
  [[nodiscard]] std::size_t choice(std::string_view key,
                                   std::span<const std::string_view> names,
                                   std::optional<std::size_t> default_value = {});

  // Any value, as JSON text without white space; empty when absent.
  [[nodiscard]] std::string json(std::string_view key);

  // The value itself, for lists and maps too long to be copied: it is no part of resolved(), and
  // valid as long as a copy of this reader. A required key.
  [[nodiscard]] const nlohmann::ordered_json& given(std::string_view key);

  // A nested object; an absent one reads as {} (its required keys then complain).
  [[nodiscard]] JsonReader section(std::string_view key);
  // Returns the members of this object with their names, for maps of objects: in one pass, where
  // section() by name searches each time. REQUIRES: nothing of this object was read yet.
  [[nodiscard]] std::vector<std::pair<std::string, JsonReader>> items();
  // Returns all members of an object of strings, likewise in one pass.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> texts() const;
  // A list of objects; absent reads as an empty list.
  [[nodiscard]] std::vector<JsonReader> sections(std::string_view key);

  // Refuses any value but the one that is supported, given as JSON text. An absent key passes.
  void only(std::string_view key, std::string_view supported);

  // Throws where a key of this object, or a name among its choices, is one that is planned and not
  // built yet. To be called before the key is read.
  void refuse_reserved(std::string_view key) const;
  void refuse_reserved(std::string_view key, std::span<const std::string_view> names) const;

  // Throws for keys of this object that nobody asked for, naming the nearest known one.
  // Nested sections are finished by whoever reads them.
  void finish() const;

  // Leaves a key that the document does not have out of resolved(), too: what it is gets decided
  // later, and a document that is read once more shall leave that open. To be called once it is
  // read.
  void leave_open(std::string_view key);

  // "optimizer.lr" for a key of this section.
  [[nodiscard]] std::string path(std::string_view key) const;

  // Throws the ConfigError of a rule that spans keys: "<path>: <rule>; got <value>".
  [[noreturn]] void fail(std::string_view key, std::string_view rule) const;

  // Everything read so far with defaults filled in, as indented JSON; keys in reading order.
  // The same for every section of a document.
  [[nodiscard]] std::string resolved() const;
  // Dotted paths of every key asked for so far, in reading order, sections included; keys of list
  // elements once, as data.train[].path.
  [[nodiscard]] std::vector<std::string> known_keys() const;

 private:
  struct Document;  // holds nlohmann's types, out of sight of includers
  struct Node;

  explicit JsonReader(std::shared_ptr<Node> node) : node_(std::move(node)) {}

  std::shared_ptr<Node> node_;  // shared: sections stay valid while any copy lives
};

// The name in `known` with the fewest edits to `word`, when it is close enough to be a typo of it.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view word,
                                                      std::span<const std::string> known);

}  // namespace slackline
