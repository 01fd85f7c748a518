#include "tools/plan/sum_codecs.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "compress/codec_traits.h"
#include "core/error.h"
#include "parallel/choose/candidates.h"
#include "parallel/choose/critical_path.h"
#include "parallel/plan/compression_plan_json.h"

namespace slackline {

namespace {

using schedule::Site;

constexpr std::array<Site, 2> kSums = {Site::data_gradient, Site::embedding};

// Codecs that may sit on sums.
struct SumCodecs {
  std::vector<CodecSetting> settings{};
  bool are_candidates = false;  // critical_path chooses, or has chosen, among them
};

SumCodecs codecs_of(const PlanHistory& plans) {
  SumCodecs codecs{.are_candidates = begins_critical_path(plans)};
  for (const PlanFromStep& row : plans) {
    for (const CompressionPlan::Class& one : row.plan.classes) {
      if (one.codec && std::ranges::find(kSums, one.members.site) != kSums.end()) {
        codecs.settings.push_back(*one.codec);
      }
    }
  }
  return codecs;
}

SumCodecs codecs_of(const CompressConfig& config, int hidden) {
  SumCodecs codecs{.are_candidates = config.policy == CompressionPolicy::critical_path};
  for (const Site site : kSums) {
    const std::string name = schedule::site_name(site);
    if (codecs.are_candidates) {
      std::ranges::copy(candidates_at(site, config, hidden), std::back_inserter(codecs.settings));
      continue;
    }
    if (const auto set = config.sites.find(name); set != config.sites.end()) {
      codecs.settings.push_back(set->second);
    }
    for (const ListedClasses& listed : config.classes) {
      if (listed.site == name && listed.codec) {
        codecs.settings.push_back(*listed.codec);
      }
    }
  }
  return codecs;
}

SumCodecs sum_codecs(const CompressConfig& config, int hidden) {
  if (config.policy == CompressionPolicy::none) {
    return {};
  }
  try {
    return config.policy == CompressionPolicy::replay ? codecs_of(read_plans(config.plan))
                                                      : codecs_of(config, hidden);
  } catch (const ConfigError&) {
  } catch (const FileError&) {
  }
  return {};
}

}  // namespace

bool codes_sums_by_levels(const CompressConfig& config, int hidden) {
  const SumCodecs codecs = sum_codecs(config, hidden);
  const auto grows = [](const CodecSetting& setting) {
    const CodecTraits& traits = traits_of(setting.kind);
    return traits.sum_rounds == nullptr || traits.cuts_by_rows;
  };
  const auto reads_moments = [](const CodecSetting& setting) { return needs_moments(setting); };
  return !codecs.settings.empty() && std::ranges::none_of(codecs.settings, reads_moments) &&
         (codecs.are_candidates ? std::ranges::any_of(codecs.settings, grows)
                                : std::ranges::all_of(codecs.settings, grows));
}

}  // namespace slackline
