#include "parallel/choose/candidates.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "compress/codec_traits.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

namespace {

using schedule::Site;
using schedule::TransferClass;

// The ranks of low_rank follow the model, as parts of its width.
constexpr std::array<int, 4> kPartsOfWidth = {4, 8, 16, 32};

CodecSetting integers(int bits, ScaleOf scale, ErrorFeedback feedback) {
  return {.kind = CodecKind::quantize, .error_feedback = feedback, .bits = bits, .scale = scale};
}

std::vector<CodecSetting> default_sums(int hidden, ScaleOf scale) {
  constexpr ErrorFeedback kOwed = ErrorFeedback::immediate;
  std::vector<CodecSetting> sums = {{.kind = CodecKind::cast, .error_feedback = kOwed},
                                    integers(8, scale, kOwed),
                                    integers(4, scale, kOwed)};
  for (const int parts : kPartsOfWidth) {
    const CodecSetting low_rank{
        .error_feedback = kOwed, .rank = std::max(1, hidden / parts), .factors = DType::bf16};
    if (low_rank != sums.back()) {  // narrow models have fewer ranks than parts
      sums.push_back(low_rank);
    }
  }
  return sums;
}

// Elements share a scale where they are alike: those of a token of a boundary's message; those of
// an output of a layer's gradient, whose columns are outputs (queries, keys and values side by
// side among them); those of a token of the table.
std::map<Site, std::vector<CodecSetting>> default_candidates(int hidden) {
  const std::vector<CodecSetting> messages = {{.kind = CodecKind::cast},
                                              integers(8, ScaleOf::token, ErrorFeedback::none),
                                              integers(4, ScaleOf::token, ErrorFeedback::none)};
  return {{Site::pipeline_forward, messages},
          {Site::pipeline_backward, messages},
          {Site::data_gradient, default_sums(hidden, ScaleOf::channel)},
          {Site::embedding, default_sums(hidden, ScaleOf::token)}};
}

// Either way of a sum, each of so many ranks sends as much.
constexpr int kGatheredAlone = 2;

// Returns how many ranks bring messages to a sum of the site that each of them needs whole, at
// most; 1: there is none.
int ranks_that_need_all(const MeshLists& lists, Site site) {
  int most = 1;
  for (int place = 0; place < lists.job().parallel.pipeline; ++place) {
    const SyncPlan& plan = lists.at(place).plan;
    for (const SyncOp& op : plan.ops) {
      const bool is_of_site = op.may_be_coded && op.members->site == site &&
                              !is_vectors(plan.buckets[op.bucket].kind);  // no codec sits on them
      if (is_of_site && op.kind == SyncOp::Kind::all_reduce) {
        most = std::max(most, op.ranks);
      }
    }
  }
  return most;
}

// Settings that are sums in two shots mean the same as others where none is made so.
std::vector<CodecSetting> without_two_shots(const std::vector<CodecSetting>& settings) {
  std::vector<CodecSetting> alone;
  for (const CodecSetting& setting : settings) {
    if (std::ranges::find(alone, setting_of_calls(setting)) == alone.end()) {
      alone.push_back(setting_of_calls(setting));
    }
  }
  return alone;
}

// Adds to each setting whose messages can be summed in two shots, which are fewer bytes from three
// ranks on, the one that is.
std::vector<CodecSetting> with_two_shots(const std::vector<CodecSetting>& settings) {
  std::vector<CodecSetting> all;
  for (const CodecSetting& setting : settings) {
    all.push_back(setting);
    if (is_summed_in_two_shots(setting)) {
      all.push_back(setting);
      all.back().sum = SumWay::two_shot;
    }
  }
  return all;
}

// Whether a config says what any site but gathers may be compressed by; then it says so of all.
bool names_sums_or_messages(const CompressConfig& config) {
  const std::string gathers = schedule::site_name(Site::parameter_gather);
  return config.sites.size() > config.sites.count(gathers) || !config.candidates.empty();
}

}  // namespace

std::map<Site, std::vector<CodecSetting>> candidates_of(const CompressConfig& config,
                                                        const MeshJob& job) {
  std::map<Site, std::vector<CodecSetting>> candidates;
  const MeshLists lists(job);
  for (const TransferClass& members : planned_classes(config, job)) {
    const bool in_passes = job.parallel.sums_in_passes() && schedule::is_once_a_step(members.phase);
    if (in_passes && members.site == Site::embedding) {
      continue;  // no codec sits on them
    }
    std::vector<CodecSetting> of_site = candidates_at(members.site, config, job.model.hidden);
    if (in_passes && !names_sums_or_messages(config)) {
      std::erase_if(of_site,
                    [](const CodecSetting& setting) { return !traits_of(setting.kind).rounds; });
    }
    if (ranks_that_need_all(lists, members.site) <= kGatheredAlone) {
      of_site = without_two_shots(of_site);
    } else if (!names_sums_or_messages(config)) {
      of_site = with_two_shots(of_site);
    }
    if (!of_site.empty()) {
      candidates[members.site] = std::move(of_site);
    }
  }
  return candidates;
}

std::vector<CodecSetting> candidates_at(Site site, const CompressConfig& config, int hidden) {
  const std::string name = schedule::site_name(site);
  if (const auto listed = config.candidates.find(name); listed != config.candidates.end()) {
    return listed->second;
  }
  if (const auto set = config.sites.find(name); set != config.sites.end()) {
    return {set->second};
  }
  std::map<Site, std::vector<CodecSetting>> defaults = default_candidates(hidden);
  const auto by_default = defaults.find(site);
  return names_sums_or_messages(config) || by_default == defaults.end()
             ? std::vector<CodecSetting>()
             : std::move(by_default->second);
}

}  // namespace slackline
