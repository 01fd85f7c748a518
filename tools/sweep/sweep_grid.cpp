#include "tools/sweep/sweep_grid.h"

#include <algorithm>
#include <set>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"
#include "core/joined_text.h"
#include "core/shown_text.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostPoints = 10'000;
constexpr std::size_t kMostKeys = 64;     // of one grid
constexpr std::size_t kLongestName = 60;  // without the hash
constexpr std::size_t kHashDigits = 8;

[[noreturn]] void refuse(std::string_view path, std::string_view rule, const Json& value) {
  throw ConfigError(fmt::format("{}: {}; got {}", path, rule, shown_value(value.dump())));
}

// `key` is a section that holds `other`.
bool holds(std::string_view key, std::string_view other) {
  return other.starts_with(key) && other.substr(key.size()).starts_with('.');
}

void check_key(const std::string& path, const std::string& key, const Json& values) {
  constexpr std::string_view kOwned = "run.dir";
  if (key == kOwned || holds(kOwned, key) ||
      (key == "run" && std::any_of(values.begin(), values.end(), [](const Json& value) {
         return value.is_object() && value.contains("dir");
       }))) {
    refuse(path, "the sweep gives every run its run.dir; leave it out", values);
  }
  if (key.empty() || key.find('=') != std::string::npos) {
    refuse(path, "must be a dotted key of the config, as in \"optimizer.lr\"", values);
  }
}

void check_values(const std::string& path, const Json& values) {
  if (values.is_object()) {
    refuse(path,
           "must be a list of values; keys inside a section are dotted, as in \"optimizer.lr\"",
           values);
  }
  if (!values.is_array()) {
    refuse(path, fmt::format("must be a list of values; nearest is [{}]", values.dump()), values);
  }
  if (values.empty()) {
    refuse(path, "must list at least one value", values);
  }
}

// The keys and values of one grid are what they should be.
void check_grid(const std::string& path, const Json& grid) {
  if (!grid.is_object()) {
    refuse(path, "must be an object of keys with a list of values each", grid);
  }
  if (grid.empty()) {
    refuse(path, "must vary at least one key, as in {\"optimizer.lr\": [1e-3, 3e-4]}", grid);
  }
  if (grid.size() > kMostKeys) {
    throw ConfigError(
        fmt::format("{}: must vary at most {} keys; got {}", path, kMostKeys, grid.size()));
  }
  for (const auto& member : grid.items()) {
    const std::string at = fmt::format("{}.{}", path, member.key());
    check_values(at, member.value());
    check_key(at, member.key(), member.value());
    for (const auto& other : grid.items()) {
      if (holds(member.key(), other.key())) {
        refuse(at,
               fmt::format("holds \"{}\", which is varied too; keep one of the two", other.key()),
               member.value());
      }
    }
  }
}

// Checks a grid, which stands at `path`, and appends its points.
void append_points(const std::string& path, const Json& grid, std::vector<SweepSettings>& points) {
  check_grid(path, grid);
  std::vector<SweepSettings> made = {{}};
  for (const auto& member : grid.items()) {
    if (points.size() + made.size() * member.value().size() > kMostPoints) {
      throw ConfigError(fmt::format("grid: must have at most {} points", kMostPoints));
    }
    std::vector<SweepSettings> longer;
    longer.reserve(made.size() * member.value().size());
    for (const SweepSettings& settings : made) {
      for (const Json& value : member.value()) {
        longer.push_back(settings);
        longer.back().push_back({member.key(), value.dump()});
      }
    }
    made = std::move(longer);
  }
  points.insert(points.end(), made.begin(), made.end());
}

// Letters, digits and what numbers are made of; anything else is a dash, and there are no two of
// those in a row.
std::string plain_text(std::string_view text) {
  std::string plain;
  for (const char character : text) {
    const bool kept = (character >= '0' && character <= '9') ||
                      (character >= 'a' && character <= 'z') ||
                      (character >= 'A' && character <= 'Z') || character == '.' ||
                      character == '+' || character == '_' || character == '-';
    if (kept) {
      plain += character;
    } else if (!plain.empty() && plain.back() != '-') {
      plain += '-';
    }
  }
  plain.erase(plain.find_last_not_of('-') + 1);
  return plain;
}

// What the point sets, in which keys of objects are sorted. Numbers are equal by value here,
// however they are written.
nlohmann::json values_of(const SweepSettings& settings) {
  nlohmann::json values;
  for (const SweepSetting& setting : settings) {
    values[setting.key] = nlohmann::json::parse(setting.value);
  }
  return values;
}

}  // namespace

std::vector<SweepSettings> expand_grid(std::string_view grid) {
  const Json json = parse_strict_json(grid);
  std::vector<SweepSettings> points;
  if (json.is_array()) {
    if (json.empty()) {
      refuse("grid", "must hold at least one grid", json);
    }
    for (std::size_t i = 0; i < json.size(); ++i) {
      append_points(fmt::format("grid.{}", i), json[i], points);
    }
  } else {
    append_points("grid", json, points);
  }
  std::set<std::string> names;
  std::set<nlohmann::json> values;
  for (const SweepSettings& settings : points) {
    if (!names.insert(point_name(settings)).second || !values.insert(values_of(settings)).second) {
      throw ConfigError(
          fmt::format("grid: gives a point twice; leave one out; got {}", point_text(settings)));
    }
  }
  return points;
}

std::string point_text(const SweepSettings& settings) {
  return joined_of(settings, ", ", [](const SweepSetting& setting) {
    return fmt::format("{}={}", setting.key, shown_value(setting.value));
  });
}

std::string point_name(const SweepSettings& settings) {
  SweepSettings sorted = settings;
  std::ranges::sort(sorted, {}, &SweepSetting::key);
  std::string name;
  const nlohmann::json values = values_of(settings);
  for (const SweepSetting& setting : sorted) {
    name += fmt::format("{}{}-{}",
                        name.empty() ? "" : "_",
                        plain_text(setting.key.substr(setting.key.rfind('.') + 1)),
                        plain_text(values[setting.key].dump()));
  }
  name.resize(std::min(name.size(), kLongestName));
  name.erase(name.find_last_not_of("-_") + 1);  // where it was cut between two words
  const std::string text = values.dump();
  return fmt::format(
      "{}-{}", name, hex_text(xxh3(std::as_bytes(std::span(text)))).substr(0, kHashDigits));
}

}  // namespace slackline
