#include "tools/run/kept_settings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strict_json.h"
#include "data/blend.h"
#include "tools/infer/model_loader.h"
#include "tools/run/checkpoint_document.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDecay = "optimizer.decay_embeddings";
constexpr const char* kSplit = "data.split";
constexpr const char* kTrainWeights = "data.train weights";
constexpr const char* kValidWeights = "data.valid weights";
constexpr const char* kValidPaths = "data.valid paths";

// Runs `read` on the data document of a checkpoint that a run goes on from.
template <typename Read>
auto with_document(const Checkpoint& checkpoint, const Read& read) {
  if (checkpoint.documents().data.empty()) {
    throw FileError(checkpoint.path() +
                    ": holds weights only, nothing to resume; use checkpoint.init_from");
  }
  return reading_document(
      checkpoint, "data", [&] { return read(parse_strict_json(checkpoint.documents().data)); });
}

std::vector<double> weights_of(const std::vector<DataSource>& sources) {
  std::vector<double> weights;
  std::ranges::transform(sources, std::back_inserter(weights), [](const DataSource& source) {
    return source.weight.value_or(0.0);
  });
  return weights;
}

std::vector<std::string> paths_of(const std::vector<DataSource>& sources) {
  std::vector<std::string> paths;
  std::ranges::transform(sources, std::back_inserter(paths), &DataSource::path);
  return paths;
}

// Whether numbers have the same ratios but for rounding.
bool have_same_ratios(std::span<const double> a, std::span<const double> b) {
  constexpr double kRounding = 1e-12;
  const std::vector<double> own = normalized_weights(a);
  const std::vector<double> other = normalized_weights(b);
  return std::ranges::equal(own, other, [&](double x, double y) {
    return std::abs(x - y) <= kRounding * std::max(x, y);
  });
}

// Gives sources without weights those that were kept, if they are of as many sources.
void keep_weights(const std::vector<double>& kept, std::vector<DataSource>& sources) {
  if (sources.empty() || kept.size() != sources.size()) {
    return;
  }
  // Ratios alone count; those that were kept have the bits that the order of samples goes by.
  if (!sources.front().weight || have_same_ratios(kept, weights_of(sources))) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      sources[i].weight = kept[i];
    }
  }
}

// The identity as it is compared: weights and shares by their ratios alone.
Json by_ratios(Json identity) {
  for (const char* key : {kTrainWeights, kSplit}) {
    identity[key] = normalized_weights(identity.at(key).get<std::vector<double>>());
  }
  return identity;
}

// The split in force when the settings were saved. Older ones say beside it whether validation
// files, with which training files are whole, were there.
Split stored_split(const Json& identity) {
  return identity.value("data.valid given", false) ? kWholeFiles : identity.at(kSplit).get<Split>();
}

// Throws for the first member of `current` that is another one in `stored`. Keys in messages are
// those of the members after `section`.
void require_same(const Json& stored,
                  const Json& current,
                  const std::string& section,
                  const std::string& checkpoint) {
  for (const auto& [key, value] : current.items()) {
    if (!stored.contains(key) || stored[key] != value) {
      throw ConfigError(fmt::format("{}{}: must stay what it was when {} was saved: {}; got {}",
                                    section,
                                    key,
                                    checkpoint,
                                    stored.contains(key) ? stored[key].dump() : "unknown",
                                    value.dump()));
    }
  }
}

void keep_all_weights(const Checkpoint& checkpoint,
                      const Json& document,
                      TrainConfig& config,
                      std::vector<std::string>& older) {
  DataConfig& data = config.data;
  const auto train = document.at("identity").at(kTrainWeights).get<std::vector<double>>();
  if (train.size() != data.train.size()) {
    throw ConfigError(
        fmt::format("data.train: must name as many data sets as when {} was saved: {}; got {}",
                    checkpoint.path(),
                    train.size(),
                    data.train.size()));
  }
  const bool is_older = !document.contains("settings");
  const bool silent =
      !data.train.front().weight || (!data.valid.empty() && !data.valid.front().weight);
  if (is_older && silent && std::max(data.train.size(), data.valid.size()) > 1) {
    older.emplace_back("weights of data sets = 1");
  }
  keep_weights(train, data.train);
  if (is_older) {
    keep_weights(std::vector<double>(data.valid.size(), 1.0), data.valid);
    return;
  }
  const Json& settings = document.at("settings");
  // Validation files may be others now. Older settings do not say which they were.
  if (settings.value(kValidPaths, paths_of(data.valid)) == paths_of(data.valid)) {
    keep_weights(settings.at(kValidWeights).get<std::vector<double>>(), data.valid);
  }
}

// The settings of a model that decide what it computes and which tensors it has.
Json lasting_model(const ModelConfig& config) {
  Json model = Json::parse(model_config_json(config));
  model.erase("dropout");
  model.erase("recompute");
  model["trainable"] = config.trainable;  // has no key of its own where all is trained
  return model;
}

}  // namespace

void settle_weights(const DataMembers& members, TrainConfig& config) {
  for (std::size_t i = 0; i < config.data.train.size(); ++i) {
    config.data.train[i].weight = members.train[i].weight;
  }
  for (std::size_t i = 0; i < config.data.valid.size(); ++i) {
    config.data.valid[i].weight = members.valid[i].weight;
  }
}

std::vector<std::string> keep_settings(const Checkpoint& checkpoint, TrainConfig& config) {
  return with_document(checkpoint, [&](const Json& document) {
    std::vector<std::string> older;
    const bool is_older = !document.contains("settings");
    if (!config.optimizer.decay_embeddings_given) {
      config.optimizer.decay_embeddings =
          !is_older && document.at("settings").at(kDecay).get<bool>();
      if (is_older) {
        older.push_back(fmt::format("{} = false", kDecay));
      }
    }
    keep_all_weights(checkpoint, document, config, older);
    const Split stored = stored_split(document.at("identity"));
    // Validation files that have come leave the training data what they were.
    const std::optional<Split>& given = config.data.given_split;
    if (!given || have_same_ratios(stored, *given) || have_same_ratios(stored, config.data.split)) {
      config.data.split = stored;
    } else {
      config.data.split = *given;
    }
    if (!given && is_older && stored == kSplitForEvaluation) {
      older.push_back(fmt::format("{} = {}", kSplit, Json(stored).dump()));
    }
    return older;
  });
}

void require_same_run(const Checkpoint& checkpoint, const TrainConfig& config) {
  require_same(lasting_model(checkpoint_model(checkpoint)),
               lasting_model(config.model),
               "model.",
               checkpoint.path());
  require_model(checkpoint, config.model);
  const Json stored = with_document(checkpoint, [](const Json& document) {
    Json identity = document.at("identity");
    identity[kSplit] = stored_split(identity);
    return by_ratios(std::move(identity));
  });
  require_same(stored, by_ratios(identity_json(config)), "", checkpoint.path());
  if (config.run.eval_every > 0 && config.data.valid.empty() && config.data.split[1] == 0.0) {
    throw ConfigError(
        fmt::format("run.eval_every: needs data.valid, because the run that {} is of trains on "
                    "whole files and holds nothing back; got {}",
                    checkpoint.path(),
                    config.run.eval_every));
  }
  if (checkpoint.step() > config.run.steps) {
    throw ConfigError(fmt::format("run.steps: {} has completed step {} already; got {}",
                                  checkpoint.path(),
                                  checkpoint.step(),
                                  config.run.steps));
  }
}

Json identity_json(const TrainConfig& config) {
  return {{"run.seed", config.run.seed},
          {"batch.global", config.batch.global},
          {kTrainWeights, weights_of(config.data.train)},
          {kSplit, config.data.split}};
}

Json settings_json(const TrainConfig& config) {
  return {{kDecay, config.optimizer.decay_embeddings},
          {kValidWeights, weights_of(config.data.valid)},
          {kValidPaths, paths_of(config.data.valid)}};
}

std::string resolved_text(const std::string& text, const TrainConfig& config) {
  constexpr int kIndent = 2;
  Json resolved = Json::parse(text);
  Json& data = resolved["data"];
  data["split"] = config.data.split;
  for (const auto& [key, sources] :
       {std::pair{"train", &config.data.train}, std::pair{"valid", &config.data.valid}}) {
    for (std::size_t i = 0; i < sources->size(); ++i) {
      if (const auto weight = (*sources)[i].weight) {  // a rehearsal has not read them
        data[key][i]["weight"] = *weight;
      }
    }
  }
  if (config.parallel.group != 0) {  // the order of sums and the places of ranks follow from it
    resolved["parallel"]["group"] = config.parallel.group;
  }
  if (resolved["parallel"]["data_strategy"] == "auto") {
    resolved["parallel"]["data_strategy"] = name_of(config.parallel.data_strategy);
  }
  resolved["batch"]["micro"] = config.batch.micro;
  resolved["optimizer"]["decay_embeddings"] = config.optimizer.decay_embeddings;
  return resolved.dump(kIndent) + "\n";
}

}  // namespace slackline
