#include "data/data_config.h"

#include <algorithm>
#include <string_view>

#include "data/blend.h"

namespace slackline {
namespace {

std::vector<DataSource> read_sources(JsonReader& section, std::string_view key) {
  std::vector<DataSource> sources;
  for (JsonReader& source : section.sections(key)) {
    DataSource& read = sources.emplace_back();
    read.path = source.string("path");
    if (read.path.empty()) {
      source.fail("path", "must name a data set, such as corpus/english");
    }
    if (source.has("weight")) {
      read.weight = source.number("weight", {.min = 0.0, .exclusive_min = true});
    }
    source.finish();
  }
  for (std::size_t i = 1; i < sources.size(); ++i) {
    if (sources[i].weight.has_value() != sources[0].weight.has_value()) {
      section.sections(key)[sources[0].weight ? i : 0].fail(
          "weight",
          "must be given for all data sets of the list or for none; without weights each counts by "
          "its size");
    }
  }
  if (sources.size() > Blend::kMaxMembers) {
    section.fail(key, "must name at most " + std::to_string(Blend::kMaxMembers) + " data sets");
  }
  return sources;
}

Split read_split(JsonReader& section, const Split& defaults) {
  const std::vector<double> shares =
      section.numbers("split", {.min = 0.0}, std::vector<double>(defaults.begin(), defaults.end()));
  Split split{};
  if (shares.size() != split.size()) {
    section.fail("split", "must be three numbers: training, validation and test");
  }
  std::copy(shares.begin(), shares.end(), split.begin());
  if (std::all_of(shares.begin(), shares.end(), [](double share) { return share == 0.0; })) {
    section.fail("split", "must have a share above 0");
  }
  return split;
}

}  // namespace

DataConfig read_data_config(JsonReader section, const Split& default_split) {
  DataConfig config;
  section.refuse_reserved("cache");
  config.train = read_sources(section, "train");
  if (config.train.empty()) {
    section.fail("train", R"(must list at least one data set, as in [{"path": "corpus/english"}])");
  }
  config.valid = read_sources(section, "valid");
  const bool whole = !config.valid.empty();
  const Split split = read_split(section, whole ? kWholeFiles : default_split);
  config.split = whole ? kWholeFiles : split;
  if (section.has("split")) {
    config.given_split = split;
  }
  section.finish();
  return config;
}

}  // namespace slackline
