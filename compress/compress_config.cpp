#include "compress/compress_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "compress/codec_traits.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 6> kPolicies = {
    "none", "all", "list", "optimus_cc", "critical_path", "replay"};
constexpr std::array<std::string_view, 4> kSites = {
    "pipeline_backward", "pipeline_forward", "data_gradient", "embedding"};
// Weights that passes gather.
constexpr std::string_view kGatherSite = "parameter_gather";
constexpr std::array<std::string_view, 5> kListedSites = {
    "pipeline_backward", "pipeline_forward", "data_gradient", "embedding", kGatherSite};
constexpr std::string_view kRoundSite = "outer";
constexpr std::array<const char*, 2> kReservedSites = {"tensor_forward", "tensor_backward"};
constexpr std::array<std::string_view, 5> kPhases = {
    "warmup", "steady", "cooldown", "step", "tail"};
constexpr std::int64_t kMaxStages = 1 << 16;

// Sums of gradients are made in different ways; what goes to one receiver is not.
void require_fit_for_site(const JsonReader& section,
                          std::string_view site,
                          const CodecSetting& setting) {
  if (setting.sum != SumWay::gather && site != "data_gradient" && site != "embedding") {
    section.fail("sum", fmt::format("is of sums of gradients: leave it out of \"{}\"", site));
  }
}

void read_site(const std::string& site, JsonReader section, CompressConfig& config) {
  std::vector<CodecSetting> candidates;
  for (JsonReader& candidate : section.sections("candidates")) {
    candidates.push_back(read_codec_setting(candidate));
    require_fit_for_site(candidate, site, candidates.back());
    candidate.finish();
  }
  if (candidates.empty() || section.has("codec")) {
    const CodecSetting setting = read_codec_setting(section);
    require_fit_for_site(section, site, setting);
    config.sites.emplace(site, setting);
  }
  if (!candidates.empty()) {
    config.candidates.emplace(site, std::move(candidates));
  }
  section.finish();
}

ListedClasses read_listed(JsonReader& section) {
  ListedClasses listed{.site = std::string(kListedSites.at(section.choice("site", kListedSites)))};
  if (section.has("stage")) {
    listed.stage = static_cast<int>(section.integer("stage", {.min = 0, .max = kMaxStages}));
  }
  if (section.has("phase")) {
    listed.phase = std::string(kPhases.at(section.choice("phase", kPhases)));
  }
  if (section.has("codec")) {
    JsonReader codec = section.section("codec");
    listed.codec =
        listed.site == kGatherSite ? read_gather_setting(codec) : read_codec_setting(codec);
    require_fit_for_site(codec, listed.site, *listed.codec);
    codec.finish();
  }
  section.finish();
  return listed;
}

bool is_given(const JsonReader& section, std::string_view key) {
  const std::vector<std::string> keys = section.keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// One bound for all sites, or an object of them, or null.
std::map<std::string, double> read_max_errors(JsonReader& section, bool has_defaults) {
  constexpr std::string_view kKey = "max_error";
  NumberRule rule{.min = 0.0, .exclusive_min = true};
  std::map<std::string, double> bounds;
  if (section.has_section(kKey) || (has_defaults && !is_given(section, kKey))) {
    JsonReader by_site = section.section(kKey);
    for (const std::string_view name : kSites) {
      const std::string site(name);
      if (has_defaults) {
        rule.default_value = critical_path_max_errors().at(site);
      }
      if (!has_defaults && !is_given(by_site, site)) {
        continue;
      }
      if (const auto bound = by_site.number_or_null(site, rule, rule.default_value)) {
        bounds[site] = *bound;
      }
    }
    by_site.finish();
  } else if (const std::optional<double> bound = section.number_or_null(kKey, rule, {})) {
    for (const std::string_view site : kSites) {
      bounds[std::string(site)] = *bound;
    }
  }
  return bounds;
}

// Under critical_path bounds have defaults, which stand in the resolved config. Under other
// policies absent ones stay absent there, so that the config means the same under another one. A
// guard that is null has none.
GuardConfig read_guard(JsonReader& compress, CompressionPolicy policy) {
  const bool is_null = is_given(compress, "guard") && !compress.has("guard");
  JsonReader section = compress.section("guard");
  GuardConfig guard;
  section.refuse_reserved("budget");
  guard.every = section.integer("every", {.default_value = 100, .min = 0, .max = INT32_MAX});
  const bool chooses = policy == CompressionPolicy::critical_path;
  if (chooses || section.has("max_error")) {
    guard.max_error = read_max_errors(section, chooses && guard.every > 0 && !is_null);
  }
  if (!guard.max_error.empty() && guard.every == 0) {
    section.fail("max_error", "needs sampled steps, and compress.guard.every is 0");
  }
  section.finish();
  return guard;
}

// Candidates alone are a choice, which these policies do not make.
void require_codecs(const JsonReader& section, const CompressConfig& config) {
  for (const auto& entry : config.candidates) {
    if (!config.sites.contains(entry.first)) {
      section.fail(entry.first,
                   "has candidates, of which critical_path alone chooses; give it a codec, or "
                   "leave it out");
    }
  }
}

void check_policy(const JsonReader& section, const CompressConfig& config) {
  if (config.policy == CompressionPolicy::all || config.policy == CompressionPolicy::optimus_cc) {
    require_codecs(section, config);
  }
  switch (config.policy) {
    case CompressionPolicy::none:
    case CompressionPolicy::optimus_cc:
    case CompressionPolicy::critical_path:
      return;
    case CompressionPolicy::all:
      if (config.sites.empty() && !config.outer) {
        section.fail("policy",
                     "\"all\" compresses the sites that are set: set one, for example "
                     "compress.data_gradient.codec");
      }
      return;
    case CompressionPolicy::list:
      if (config.classes.empty()) {
        section.fail("policy", "\"list\" needs compress.classes");
      }
      return;
    case CompressionPolicy::replay:
      if (config.plan.empty()) {
        section.fail("policy", "\"replay\" needs compress.plan, the path of a plan.json");
      }
  }
}

// Refuses settings of whole matrices of gradients for shares of weights.
void require_fit_for_shares(const JsonReader& section, const CodecSetting& setting) {
  if (section.has("scale") && setting.scale != ScaleOf::group && setting.scale != ScaleOf::tensor) {
    section.fail("scale", "must be \"group\" or \"tensor\": a share of weights has no columns");
  }
  if (needs_moments(setting)) {
    section.fail("units", "must be \"values\": weights have no second moments");
  }
}

}  // namespace

const std::map<std::string, double>& critical_path_max_errors() {
  static const std::map<std::string, double> errors = {{"pipeline_forward", 0.05},
                                                       {"pipeline_backward", 0.05},
                                                       {"data_gradient", 0.3},
                                                       {"embedding", 0.3}};
  return errors;
}

CodecSetting read_gather_setting(JsonReader& section) {
  const CodecSetting setting = read_codec_setting(section, {.scale = ScaleOf::group});
  if (!traits_of(setting.kind).rounds) {
    section.fail("codec", "must be \"quantize\" or \"cast\": the others leave weights out");
  }
  if (setting.error_feedback != ErrorFeedback::none) {
    section.fail("error_feedback",
                 "must be \"none\": weights are sent anew each time, and nothing is owed");
  }
  require_fit_for_site(section, kGatherSite, setting);
  require_fit_for_shares(section, setting);
  return setting;
}

CodecSetting read_round_setting(JsonReader& section) {
  const CodecSetting setting = read_codec_setting(
      section, {.error_feedback = ErrorFeedback::immediate, .scale = ScaleOf::group});
  require_fit_for_site(section, kRoundSite, setting);
  require_fit_for_shares(section, setting);
  return setting;
}

bool needs_moments(const CompressConfig& config) {
  const auto reads = [](const CodecSetting& setting) { return needs_moments(setting); };
  return std::ranges::any_of(config.sites, reads, [](const auto& site) { return site.second; }) ||
         std::ranges::any_of(
             config.candidates,
             [&](const auto& site) { return std::ranges::any_of(site.second, reads); }) ||
         std::ranges::any_of(config.classes, [&](const ListedClasses& listed) {
           return listed.codec && reads(*listed.codec);
         });
}

CompressConfig read_compress_config(JsonReader section) {
  CompressConfig config;
  config.policy = static_cast<CompressionPolicy>(section.choice("policy", kPolicies, 0));
  for (const char* site : kReservedSites) {
    section.refuse_reserved(site);
  }
  for (const std::string_view site : kSites) {
    if (section.has(site)) {
      read_site(std::string(site), section.section(site), config);
    }
  }
  if (section.has(kGatherSite)) {
    JsonReader gather = section.section(kGatherSite);
    config.sites.emplace(kGatherSite, read_gather_setting(gather));
    gather.finish();
  }
  if (section.has(kRoundSite)) {
    JsonReader round = section.section(kRoundSite);
    config.outer = read_round_setting(round);
    round.finish();
  }
  config.warmup_steps = static_cast<int>(
      section.integer("warmup_steps", {.default_value = 0, .min = 0, .max = INT32_MAX}));
  for (JsonReader& listed : section.sections("classes")) {
    config.classes.push_back(read_listed(listed));
    if (!config.classes.back().codec && !config.sites.contains(config.classes.back().site)) {
      listed.fail("site", "needs a codec here, or in the section of its site");
    }
  }
  config.epilogue_only = section.boolean("epilogue_only", true);
  if (section.has("stages")) {
    config.stages = static_cast<int>(section.integer("stages", {.min = 0, .max = kMaxStages}));
  }
  config.plan = section.string("plan", "");
  config.guard = read_guard(section, config.policy);
  section.finish();  // a misspelt site comes before what its absence means
  check_policy(section, config);
  return config;
}

}  // namespace slackline
