#include "compress/compress_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "compress/codec_setting_json.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 6> kPolicies = {
    "none", "all", "list", "optimus_cc", "critical_path", "replay"};
constexpr std::array<std::string_view, 4> kSites = {
    "pipeline_backward", "pipeline_forward", "data_gradient", "embedding"};
constexpr std::array<std::string_view, 3> kReservedSites = {
    "tensor_forward", "parameter_gather", "outer"};
constexpr std::array<std::string_view, 4> kPhases = {"warmup", "steady", "cooldown", "step"};
constexpr std::int64_t kMaxStages = 1 << 16;

void read_site(const std::string& site, JsonReader section, CompressConfig& config) {
  std::vector<CodecSetting> candidates;
  for (JsonReader& candidate : section.sections("candidates")) {
    candidates.push_back(read_codec_setting(candidate));
    candidate.finish();
  }
  if (candidates.empty() || section.has("codec")) {
    config.sites.emplace(site, read_codec_setting(section));
  }
  if (!candidates.empty()) {
    config.candidates.emplace(site, std::move(candidates));
  }
  section.finish();
}

ListedClasses read_listed(JsonReader& section) {
  ListedClasses listed{.site = std::string(kSites.at(section.choice("site", kSites)))};
  if (section.has("stage")) {
    listed.stage = static_cast<int>(section.integer("stage", {.min = 0, .max = kMaxStages}));
  }
  if (section.has("phase")) {
    listed.phase = std::string(kPhases.at(section.choice("phase", kPhases)));
  }
  if (section.has("codec")) {
    JsonReader codec = section.section("codec");
    listed.codec = read_codec_setting(codec);
    codec.finish();
  }
  section.finish();
  return listed;
}

// Under critical_path the bound has a default, which stands in the resolved config. Under other
// policies an absent bound stays absent there, so that the config means the same under another one.
GuardConfig read_guard(JsonReader section, CompressionPolicy policy) {
  GuardConfig guard;
  guard.every = section.integer("every", {.default_value = 100, .min = 0, .max = INT32_MAX});
  const bool chooses = policy == CompressionPolicy::critical_path;
  if (chooses || section.has("max_error")) {
    const bool judges = chooses && guard.every > 0;
    guard.max_error =
        section.number_or_null("max_error",
                               {.min = 0.0, .exclusive_min = true},
                               judges ? std::make_optional(kCriticalPathMaxError) : std::nullopt);
  }
  if (guard.max_error && guard.every == 0) {
    section.fail("max_error", "needs sampled steps, and compress.guard.every is 0");
  }
  section.finish();
  return guard;
}

void check_policy(const JsonReader& section, const CompressConfig& config) {
  switch (config.policy) {
    case CompressionPolicy::none:
    case CompressionPolicy::optimus_cc:
    case CompressionPolicy::critical_path:
      return;
    case CompressionPolicy::all:
      if (config.sites.empty()) {
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

}  // namespace

CompressConfig read_compress_config(JsonReader section) {
  CompressConfig config;
  config.policy = static_cast<CompressionPolicy>(section.choice("policy", kPolicies, 0));
  for (const std::string_view site : kReservedSites) {
    if (section.has(site)) {
      section.fail(site, "this site is reserved and not built yet; remove it");
    }
  }
  for (const std::string_view site : kSites) {
    if (section.has(site)) {
      read_site(std::string(site), section.section(site), config);
    }
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
  config.guard = read_guard(section.section("guard"), config.policy);
  section.finish();  // a misspelt site comes before what its absence means
  check_policy(section, config);
  return config;
}

}  // namespace slackline
