#include "core/json_reader.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <unordered_set>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/joined_text.h"
#include "core/json_rules.h"
#include "core/shown_text.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

std::string nearest_hint(std::string_view word, const std::vector<std::string>& known) {
  const auto nearest = nearest_name(word, known);
  return nearest ? fmt::format("; nearest is \"{}\"", *nearest) : "";
}

// The member or element of `parent` that one component of a --set path names, created if absent.
Json* step_into(Json* parent, const std::string& component, std::string_view assignment) {
  if (parent->is_null()) {
    *parent = component == "0" ? Json::array() : Json::object();
  }
  if (parent->is_object() && !component.empty()) {
    return &(*parent)[component];
  }
  if (parent->is_array()) {
    std::size_t index = 0;
    const char* end = component.data() + component.size();
    const auto parsed = std::from_chars(component.data(), end, index);
    if (parsed.ec == std::errc{} && parsed.ptr == end && index <= parent->size()) {
      if (index == parent->size()) {
        parent->push_back(nullptr);
      }
      return &(*parent)[index];
    }
    throw ConfigError(
        fmt::format("--set: \"{}\" must be the number of a list element, 0 to {}; got {}",
                    shown_value(component),
                    parent->size(),
                    assignment));
  }
  throw ConfigError(fmt::format(
      "--set: \"{}\" must be a key inside an object; got {}", shown_value(component), assignment));
}

}  // namespace

// One object of the document, and what was read of it.
struct JsonReader::Node {
  using Elements = std::vector<Node*>;
  using Result = std::variant<Json, Node*, Elements>;

  Document* document;
  const Json* given;    // the object; null where the document has none
  std::string path;     // data.train.0
  std::string pattern;  // data.train[]
  std::vector<std::string> asked{};
  std::vector<std::pair<std::string, Result>> results{};  // in reading order

  // The value given for a key, which becomes a known one; null where absent (or a JSON null).
  const Json* ask(std::string_view key);
  void make_known(std::string_view key);
  // A new node for a key's value, which has to be an object; null where absent.
  Node* open(std::string_view key, const Json* value) const;

  const Json* find(std::string_view key) const {
    if (given == nullptr) {
      return nullptr;
    }
    const auto found = given->find(std::string(key));
    return found == given->end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] const Json::object_t& members() const {
    static const Json::object_t kNone;
    return given == nullptr ? kNone : given->get_ref<const Json::object_t&>();
  }

  Result* result(std::string_view key) {
    const auto found = std::find_if(
        results.begin(), results.end(), [&](const auto& entry) { return entry.first == key; });
    return found == results.end() ? nullptr : &found->second;
  }

  void record(std::string_view key, Result value) {
    if (Result* existing = result(key)) {
      *existing = std::move(value);
    } else {
      results.emplace_back(key, std::move(value));
    }
  }

  // Reads a scalar or list: what `check` makes of the given value, else the default.
  template <typename T, typename Check>
  T read(std::string_view key, const std::optional<T>& default_value, const Check& check) {
    const Json* value = ask(key);
    if (value == nullptr && !default_value) {
      throw ConfigError(join_path(path, key) + ": required key is missing");
    }
    T checked = value == nullptr ? *default_value : check(join_path(path, key), *value);
    record(key, Json(checked));
    return checked;
  }

  // Reads a list of `what`, each of its elements in that way.
  template <typename T, typename Check>
  std::vector<T> read_list(std::string_view key,
                           const std::optional<std::vector<T>>& default_value,
                           std::string_view what,
                           const Check& check) {
    return read(key, default_value, [&](const std::string& place, const Json& value) {
      if (!value.is_array()) {
        refuse(place, fmt::format("expected a list of {}", what), value);
      }
      std::vector<T> list;
      list.reserve(value.size());
      for (const Json& element : value) {
        list.push_back(check(join_path(place, std::to_string(list.size())), element));
      }
      return list;
    });
  }

  Json resolved() const;
};

struct JsonReader::Document {
  Json root;
  std::deque<Node> nodes{};  // nodes refer to each other by address; the first is the root's
  std::vector<std::string> known{};
  std::unordered_set<std::string> known_set{};
  bool reading = false;
};

const Json* JsonReader::Node::ask(std::string_view key) {
  if (std::find(asked.begin(), asked.end(), key) == asked.end()) {
    make_known(key);
  }
  return find(key);
}

void JsonReader::Node::make_known(std::string_view key) {
  document->reading = true;
  asked.emplace_back(key);
  std::string known = join_path(pattern, key);
  if (document->known_set.insert(known).second) {
    document->known.push_back(std::move(known));
  }
}

JsonReader::Node* JsonReader::Node::open(std::string_view key, const Json* value) const {
  if (value != nullptr && !value->is_object()) {
    refuse(join_path(path, key), "expected an object", *value);
  }
  document->nodes.push_back({document, value, join_path(path, key), join_path(pattern, key)});
  return &document->nodes.back();
}

Json JsonReader::Node::resolved() const {
  Json object = Json::object();
  for (const auto& [key, value] : results) {
    if (const Json* scalar = std::get_if<Json>(&value)) {
      object[key] = *scalar;
    } else if (Node* const* section = std::get_if<Node*>(&value)) {
      object[key] = (*section)->resolved();
    } else {
      object[key] = Json::array();
      for (const Node* element : std::get<Elements>(value)) {
        object[key].push_back(element->resolved());
      }
    }
  }
  return object;
}

JsonReader JsonReader::parse(std::string_view text, const std::string& source) {
  auto document = std::make_shared<Document>();
  try {
    document->root = parse_strict_json(text);
  } catch (const JsonSyntaxError& error) {
    throw ConfigError(source + ": " + error.what());
  }
  if (!document->root.is_object()) {
    throw ConfigError(source + ": expected a JSON object; got " + show(document->root));
  }
  document->nodes.push_back({document.get(), &document->root, "", ""});
  Node* root = &document->nodes.front();
  return JsonReader(std::shared_ptr<Node>(std::move(document), root));
}

JsonReader JsonReader::parse_file(const std::string& path) {
  std::string text;
  try {
    text = read_file(path, kMostJsonBytes);
  } catch (const FileError& error) {
    throw ConfigError(error.what());
  }
  return parse(text, path);
}

void JsonReader::set(std::string_view assignment) {
  SL_CHECK(!node_->document->reading, "set() after reading began");
  if (!is_utf8(assignment)) {
    throw ConfigError(fmt::format("--set: must be UTF-8; got {}", assignment));
  }
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw ConfigError(fmt::format("--set: expected KEY=VALUE; got {}", assignment));
  }
  Json* target = &node_->document->root;
  std::string_view rest = assignment.substr(0, equals);
  if (std::ranges::count(rest, '.') >= kMaxJsonDepth) {
    throw ConfigError(fmt::format(
        "--set: a key may have {} parts; got {}", kMaxJsonDepth, shown_value(assignment)));
  }
  for (std::size_t dot = 0; dot != std::string_view::npos; rest.remove_prefix(dot + 1)) {
    dot = rest.find('.');
    target = step_into(target, std::string(rest.substr(0, dot)), assignment);
    if (dot == std::string_view::npos) {
      break;
    }
  }
  const std::string_view value = assignment.substr(equals + 1);
  try {
    *target = parse_strict_json(value);
  } catch (const JsonSyntaxError& error) {
    if (!value.empty() && std::string_view("{[\"").find(value.front()) != std::string_view::npos) {
      throw ConfigError(
          fmt::format("--set: value is not JSON: {}; got {}", error.what(), assignment));
    }
    *target = std::string(value);
  }
}

bool JsonReader::has(std::string_view key) const {
  return node_->ask(key) != nullptr;
}

bool JsonReader::has_section(std::string_view key) const {
  const Json* value = node_->ask(key);
  return value != nullptr && value->is_object();
}

std::vector<std::string> JsonReader::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : node_->members()) {
    names.push_back(key);
  }
  return names;
}

std::int64_t JsonReader::integer(std::string_view key, const IntegerRule& rule) {
  return node_->read(key, rule.default_value, [&](const std::string& path, const Json& value) {
    return check_integer(path, rule, value);
  });
}

double JsonReader::number(std::string_view key, const NumberRule& rule) {
  return node_->read(key, rule.default_value, [&](const std::string& path, const Json& value) {
    return check_number(path, rule, value);
  });
}

std::optional<double> JsonReader::number_or_null(std::string_view key,
                                                 const NumberRule& rule,
                                                 std::optional<double> when_absent) {
  std::optional<double> number = when_absent;
  if (const Json* value = node_->ask(key)) {
    number = check_number(path(key), rule, *value);
  } else if (node_->given != nullptr && node_->given->contains(std::string(key))) {
    number.reset();
  }
  node_->record(key, number ? Json(*number) : Json(nullptr));
  return number;
}

bool JsonReader::boolean(std::string_view key, std::optional<bool> default_value) {
  return node_->read(key, default_value, [](const std::string& path, const Json& value) {
    if (!value.is_boolean()) {
      refuse(path, "expected true or false", value);
    }
    return value.get<bool>();
  });
}

std::string JsonReader::string(std::string_view key,
                               const std::optional<std::string>& default_value) {
  return node_->read(key, default_value, check_text);
}

std::vector<std::int64_t> JsonReader::integers(
    std::string_view key,
    const IntegerRule& each,
    const std::optional<std::vector<std::int64_t>>& default_value) {
  return node_->read_list(
      key, default_value, "integers", [&](const std::string& path, const Json& element) {
        return check_integer(path, each, element);
      });
}

std::vector<double> JsonReader::numbers(std::string_view key,
                                        const NumberRule& each,
                                        const std::optional<std::vector<double>>& default_value) {
  return node_->read_list(
      key, default_value, "numbers", [&](const std::string& path, const Json& element) {
        return check_number(path, each, element);
      });
}

std::vector<std::string> JsonReader::strings(
    std::string_view key, const std::optional<std::vector<std::string>>& default_value) {
  return node_->read_list(key, default_value, "strings", check_text);
}

std::size_t JsonReader::choice(std::string_view key,
                               std::span<const std::string_view> names,
                               std::optional<std::size_t> default_value) {
  SL_CHECK(!default_value || *default_value < names.size(), "default of " + path(key));
  const std::optional<std::string> default_name =
      default_value ? std::optional<std::string>(names[*default_value]) : std::nullopt;
  const std::string name =
      node_->read(key, default_name, [&](const std::string& path, const Json& value) {
        const std::string rule = "must be one of " + joined(names, ", ");
        if (!value.is_string()) {
          refuse(path, rule, value);
        }
        auto given = value.get<std::string>();
        if (std::find(names.begin(), names.end(), given) == names.end()) {
          refuse(path, rule + nearest_hint(given, {names.begin(), names.end()}), value);
        }
        return given;
      });
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::string JsonReader::json(std::string_view key) {
  const Json* value = node_->ask(key);
  if (value == nullptr) {
    return {};
  }
  node_->record(key, *value);
  return value->dump();
}

const Json& JsonReader::given(std::string_view key) {
  const Json* value = node_->ask(key);
  if (value == nullptr) {
    throw ConfigError(path(key) + ": required key is missing");
  }
  return *value;
}

JsonReader JsonReader::section(std::string_view key) {
  const Json* value = node_->ask(key);
  if (Node::Result* existing = node_->result(key)) {
    return JsonReader(std::shared_ptr<Node>(node_, std::get<Node*>(*existing)));
  }
  Node* opened = node_->open(key, value);
  node_->record(key, opened);
  return JsonReader(std::shared_ptr<Node>(node_, opened));
}

std::vector<std::pair<std::string, JsonReader>> JsonReader::items() {
  SL_CHECK(node_->asked.empty(), "items() after reading began");
  std::vector<std::pair<std::string, JsonReader>> readers;
  for (const auto& [key, value] : node_->members()) {
    node_->make_known(key);
    Node* opened = node_->open(key, &value);
    node_->results.emplace_back(key, opened);
    readers.emplace_back(key, JsonReader(std::shared_ptr<Node>(node_, opened)));
  }
  return readers;
}

std::vector<std::pair<std::string, std::string>> JsonReader::texts() const {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [key, value] : node_->members()) {
    texts.emplace_back(key, check_text(path(key), value));
  }
  return texts;
}

std::vector<JsonReader> JsonReader::sections(std::string_view key) {
  const Json* value = node_->ask(key);
  if (value != nullptr && !value->is_array()) {
    refuse(path(key), "expected a list of objects", *value);
  }
  if (node_->result(key) == nullptr) {
    Node::Elements elements;
    for (std::size_t i = 0; value != nullptr && i < value->size(); ++i) {
      const std::string element_path = join_path(path(key), std::to_string(i));
      if (!(*value)[i].is_object()) {
        refuse(element_path, "expected an object", (*value)[i]);
      }
      auto& nodes = node_->document->nodes;
      nodes.push_back(
          {node_->document, &(*value)[i], element_path, join_path(node_->pattern, key) + "[]"});
      elements.push_back(&nodes.back());
    }
    node_->record(key, std::move(elements));
  }
  std::vector<JsonReader> readers;
  for (Node* element : std::get<Node::Elements>(*node_->result(key))) {
    readers.push_back(JsonReader(std::shared_ptr<Node>(node_, element)));
  }
  return readers;
}

void JsonReader::only(std::string_view key, std::string_view supported) {
  if (has(key) && json(key) != supported) {
    fail(key, fmt::format("only {} is supported", supported));
  }
}

void JsonReader::refuse_reserved(std::string_view key) const {
  if (const Json* value = node_->find(key)) {
    refuse(path(key), "is not built yet; remove it", *value);
  }
  if (node_->given != nullptr && node_->given->contains(std::string(key))) {
    node_->asked.emplace_back(key);  // a null turns off what there is not
  }
}

void JsonReader::refuse_reserved(std::string_view key,
                                 std::span<const std::string_view> names) const {
  const Json* value = node_->find(key);
  if (value != nullptr && value->is_string() &&
      std::ranges::find(names, value->get<std::string>()) != names.end()) {
    refuse(path(key), "this one is not built yet", *value);
  }
}

void JsonReader::finish() const {
  for (const std::string& key : keys()) {
    const auto& known = node_->asked;
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const auto nearest = nearest_name(key, known);
      refuse(path(shown_value(key)),
             nearest ? fmt::format("unknown key; nearest is {}", path(*nearest))
                     : "unknown key; known here: " + joined(known, ", "),
             (*node_->given)[key]);
    }
  }
}

std::string JsonReader::path(std::string_view key) const {
  return join_path(node_->path, key);
}

void JsonReader::fail(std::string_view key, std::string_view rule) const {
  if (const Json* value = node_->find(key)) {
    refuse(path(key), rule, *value);
  }
  const Node::Result* result = node_->result(key);
  const Json* used = result == nullptr ? nullptr : std::get_if<Json>(result);
  throw ConfigError(
      fmt::format("{}: {}; {}",
                  path(key),
                  rule,
                  used == nullptr ? "it is absent" : "got " + show(*used) + " (the default)"));
}

void JsonReader::leave_open(std::string_view key) {
  if (node_->find(key) == nullptr) {
    std::erase_if(node_->results, [&](const auto& entry) { return entry.first == key; });
  }
}

std::string JsonReader::resolved() const {
  constexpr int kIndent = 2;
  return node_->document->nodes.front().resolved().dump(kIndent) + "\n";
}

std::vector<std::string> JsonReader::known_keys() const {
  return node_->document->known;
}

}  // namespace slackline
