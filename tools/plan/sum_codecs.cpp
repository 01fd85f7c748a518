#include "tools/plan/sum_codecs.h"

#include <algorithm>
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

constexpr Site kSums = Site::data_gradient;

// Codecs that may sit on sums.
struct SumCodecs {
  std::vector<CodecSetting> settings{};
  bool are_candidates = false;  // critical_path chooses, or has chosen, among them
};

SumCodecs codecs_of(const PlanHistory& plans) {
  SumCodecs codecs{.are_candidates = begins_critical_path(plans)};
  for (const PlanFromStep& row : plans) {
    for (const CompressionPlan::Class& one : row.plan.classes) {
      if (one.codec && one.members.site == kSums) {
        codecs.settings.push_back(*one.codec);
      }
    }
  }
  return codecs;
}

SumCodecs codecs_of(const CompressConfig& config, int hidden) {
  if (config.policy == CompressionPolicy::critical_path) {
    return {.settings = candidates_at(kSums, config, hidden), .are_candidates = true};
  }
  SumCodecs codecs;
  const std::string name = schedule::site_name(kSums);
  if (const auto set = config.sites.find(name); set != config.sites.end()) {
    codecs.settings.push_back(set->second);
  }
  for (const ListedClasses& listed : config.classes) {
    if (listed.site == name && listed.codec) {
      codecs.settings.push_back(*listed.codec);
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
