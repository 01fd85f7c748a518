#include "model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/parameter_table.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 1> kArchitectures = {"gpt2"};
constexpr std::array<std::string_view, 2> kRecompute = {"none", "block"};

int size(JsonReader& section, std::string_view key, std::int64_t most = kMaxModelSize) {
  return static_cast<int>(section.integer(key, {.min = 1, .max = most}));
}

// Patterns are tried on every name, and each '*' but the first tries a name's ends anew. A bracket
// may take a whole pattern to end.
void require_short_work(const JsonReader& section, const ModelConfig& config) {
  constexpr double kMostTrials = 1e8;  // a second or two
  constexpr double kNameLength = 40.0;
  constexpr double kNamesOfLayer = 12.0;
  double trials = 0.0;
  for (const std::string& pattern : config.trainable) {
    const auto stars = static_cast<double>(std::ranges::count(pattern, '*'));
    const double length = 1.0 + static_cast<double>(pattern.size()) / kNameLength;
    trials +=
        kNamesOfLayer * config.layers * length * std::pow(kNameLength, std::max(0.0, stars - 1.0));
  }
  if (trials > kMostTrials) {
    section.fail("trainable",
                 fmt::format("{} patterns that are so long or have so many '*' take too long to "
                             "find among the names of {} layers; use fewer",
                             config.trainable.size(),
                             config.layers));
  }
}

// Each pattern has to name a parameter, for a misspelt one would train less than was meant.
void read_trainable(JsonReader& section, ModelConfig& config) {
  config.trainable = section.strings("trainable", std::vector<std::string>());
  require_short_work(section, config);
  const std::vector<ParameterSpec> table = parameter_table(config);
  for (const std::string& pattern : config.trainable) {
    if (std::ranges::none_of(
            table, [&](const ParameterSpec& spec) { return matches(pattern, spec.name); })) {
      section.fail("trainable",
                   fmt::format("'{}' matches no parameter; names are like {}, {} and {}",
                               pattern,
                               table.front().name,
                               table[4].name,
                               table.back().name));
    }
  }
}

int nearest_divisor(int number, int wish) {
  for (int away = 1; away < wish; ++away) {
    for (const int candidate : {wish - away, wish + away}) {
      if (number % candidate == 0) {
        return candidate;
      }
    }
  }
  return 1;
}

}  // namespace

ModelConfig read_model_config(JsonReader section) {
  ModelConfig config;
  static_cast<void>(section.choice("architecture", kArchitectures, 0));
  config.layers = size(section, "layers", kMaxLayers);
  config.hidden = size(section, "hidden");
  config.heads = size(section, "heads");
  config.sequence = size(section, "sequence");
  config.vocab = size(section, "vocab");
  if (config.hidden % config.heads != 0) {
    section.fail("heads",
                 fmt::format("must divide model.hidden = {}; nearest is {}",
                             config.hidden,
                             nearest_divisor(config.hidden, config.heads)));
  }
  config.ffn = static_cast<int>(section.integer(
      "ffn",
      {.default_value = 4 * std::int64_t{config.hidden}, .min = 1, .max = 4 * kMaxModelSize}));
  const std::int64_t kv_heads =
      section.integer("kv_heads", {.default_value = config.heads, .min = 1, .max = config.heads});
  if (kv_heads != config.heads) {
    section.fail("kv_heads",
                 fmt::format("grouped-query attention is not built yet; use model.heads = {}",
                             config.heads));
  }
  config.dropout = static_cast<float>(
      section.number("dropout", {.default_value = 0.0, .min = 0.0, .max = kMostDropout}));
  config.tie_embeddings = section.boolean("tie_embeddings", true);
  config.recompute = static_cast<Recompute>(section.choice("recompute", kRecompute, 0));
  read_trainable(section, config);
  section.finish();
  return config;
}

std::string model_config_json(const ModelConfig& config) {
  const std::string trainable =
      config.trainable.empty()
          ? ""
          : fmt::format(R"(, "trainable": {})", nlohmann::json(config.trainable).dump());
  return fmt::format(
      R"({{"architecture": "gpt2", "layers": {}, "hidden": {}, "heads": {}, "sequence": {}, )"
      R"("vocab": {}, "ffn": {}, "dropout": {}, "tie_embeddings": {}, "recompute": "{}"{}}})",
      config.layers,
      config.hidden,
      config.heads,
      config.sequence,
      config.vocab,
      config.ffn,
      config.dropout,
      config.tie_embeddings,
      kRecompute[static_cast<std::size_t>(config.recompute)],
      trainable);
}

}  // namespace slackline
