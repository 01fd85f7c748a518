// The keys of configs: the reader's, configs/schema.json's and configs/README.md's.

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/tools/run/smallest_config.h"
#include "tools/config/train_config.h"

namespace slackline {

namespace {

const std::string kSource = SL_SOURCE_DIR;

// Dotted paths of every leaf of a JSON Schema object; list items as "[]".
void collect_schema_keys(const nlohmann::json& root,
                         const nlohmann::json& node,
                         const std::string& path,
                         std::set<std::string>& keys) {
  if (node.contains("$ref")) {
    const std::string name = node["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
    collect_schema_keys(root, root["$defs"][name], path, keys);
  } else if (node.contains("properties")) {
    for (const auto& [key, child] : node["properties"].items()) {
      const bool recursive = key == "candidates";  // a list of the same settings
      std::string below = path.empty() ? "" : path + ".";
      below += key;
      recursive ? static_cast<void>(keys.insert(below))
                : collect_schema_keys(root, child, below, keys);
    }
  } else if (node.contains("items") && node["items"].contains("properties")) {
    collect_schema_keys(root, node["items"], path + "[]", keys);
  } else {
    keys.insert(path);
  }
}

std::set<std::string> schema_keys() {
  const nlohmann::json schema = nlohmann::json::parse(read_file(kSource + "/configs/schema.json"));
  std::set<std::string> keys;
  collect_schema_keys(schema, schema, "", keys);
  return keys;
}

std::string last_part(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

// compress.<site>.<key>, or the codec of a listed class.
bool is_of_codec_setting(const std::string& key) {
  constexpr std::string_view kSection = "compress.";
  return key.starts_with(kSection) && key.find('.', kSection.size()) != std::string::npos &&
         !key.starts_with("compress.guard.") &&
         (!key.starts_with("compress.classes[].") || key.starts_with("compress.classes[].codec."));
}

// Keys of a codec setting have one row for all sites.
std::string name_in_readme(const std::string& key) {
  return is_of_codec_setting(key) ? last_part(key) : key;
}

// Names between backquotes in the first cells of the tables of configs/README.md.
std::set<std::string> readme_rows() {
  std::set<std::string> names;
  std::istringstream lines(read_file(kSource + "/configs/README.md"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) {
      continue;
    }
    const std::string cell = line.substr(0, line.find(" |", 1));
    for (std::size_t begin = cell.find('`'); begin != std::string::npos;) {
      const std::size_t end = cell.find('`', begin + 1);
      names.insert(cell.substr(begin + 1, end - begin - 1));
      begin = cell.find('`', end + 1);
    }
  }
  return names;
}

// Every leaf key that the reader asks for when every optional section is there.
std::set<std::string> reader_keys() {
  JsonReader document = JsonReader::parse(kSmallestConfig, "test.json");
  document.set("data.valid=[{\"path\": \"corpus/v\"}]");
  for (const char* site : {"pipeline_backward", "pipeline_forward", "data_gradient", "embedding"}) {
    document.set(std::string("compress.") + site + R"(={"codec": "low_rank", "rank": 4})");
  }
  document.set(R"(compress.parameter_gather={"codec": "cast"})");
  document.set(R"(compress.pipeline_forward={"codec": "top_k", "ratio": 0.1})");
  document.set(R"(compress.embedding={"codec": "quantize", "bits": 4, "scale": "group"})");
  document.set(R"(compress.classes=[{"site": "embedding", "stage": 0, "phase": "step",
                                     "codec": {"codec": "cast"}}])");
  document.set("compress.stages=1");
  document.set(R"(compress.outer={"codec": "cast"})");
  document.set(R"(outer={"method": "none", "clip": 1.0})");
  document.set("compress.guard.max_error=0.5");
  static_cast<void>(read_train_config(document));
  std::set<std::string> keys;
  for (const std::string& key : document.known_keys()) {
    keys.insert(key);
  }
  return keys;
}

}  // namespace

TEST_CASE("the schema's defaults are the reader's") {
  JsonReader document = JsonReader::parse(kSmallestConfig, "test.json");
  static_cast<void>(read_train_config(document));
  const nlohmann::json resolved = nlohmann::json::parse(document.resolved());
  const nlohmann::json schema = nlohmann::json::parse(read_file(kSource + "/configs/schema.json"));
  std::size_t compared = 0;
  const auto compare = [&](const std::string& key, const nlohmann::json& rule, const auto& found) {
    if (rule.contains("default")) {
      INFO(key);
      REQUIRE(found.contains(last_part(key)));
      REQUIRE(found[last_part(key)] == rule["default"]);
      ++compared;
    }
  };
  for (const auto& [section, rule] : schema["properties"].items()) {
    compare(section, rule, resolved);
    const nlohmann::json keys = rule.value("properties", nlohmann::json::object());
    for (const auto& [key, below] : keys.items()) {
      if (below.is_object() && resolved.contains(section)) {
        compare(fmt::format("{}.{}", section, key), below, resolved[section]);
      }
    }
  }
  REQUIRE(compared >= 40);
}

TEST_CASE("the list of keys is frozen: reader, schema and README name the same ones") {
  const std::set<std::string> schema = schema_keys();
  const std::set<std::string> rows = readme_rows();
  for (const std::string& key : schema) {
    INFO("schema key " << key << " has no row in configs/README.md");
    REQUIRE(rows.contains(name_in_readme(key)));
  }
  std::set<std::string> leaves;
  for (const std::string& key : reader_keys()) {
    const bool section = std::any_of(schema.begin(), schema.end(), [&](const std::string& known) {
      return known.starts_with(key + ".") || known.starts_with(key + "[]");
    });
    if (!section) {
      INFO("the reader asks for " << key << ", which configs/schema.json does not have");
      REQUIRE(schema.contains(key));
      leaves.insert(key);
    }
  }
  // A site has the keys of its codec only; the sites of the test show all of them between them.
  const auto asked_for_by_some_site = [&](const std::string& key) {
    return std::any_of(leaves.begin(), leaves.end(), [&](const std::string& leaf) {
      return is_of_codec_setting(leaf) && last_part(leaf) == last_part(key);
    });
  };
  for (const std::string& key : schema) {
    if (is_of_codec_setting(key)) {
      INFO("configs/schema.json has " << key << ", which no codec asks for");
      REQUIRE(asked_for_by_some_site(key));
      continue;
    }
    INFO("configs/schema.json has " << key << ", which the reader never asks for");
    REQUIRE(leaves.contains(key));
  }
}

}  // namespace slackline
