#include "compress/compress_config.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace slackline {

namespace {

constexpr std::array<std::string_view, 6> kPolicies = {
    "none", "all", "list", "optimus_cc", "critical_path", "replay"};
constexpr std::array<std::string_view, 5> kCodecs = {
    "low_rank", "top_k", "random_k", "quantize", "cast"};
constexpr std::array<std::string_view, 3> kErrorFeedback = {"none", "immediate", "lazy"};
constexpr std::array<std::string_view, 4> kSites = {
    "pipeline_backward", "pipeline_forward", "data_gradient", "embedding"};
constexpr std::array<std::string_view, 3> kReservedSites = {
    "tensor_forward", "parameter_gather", "outer"};
constexpr std::int64_t kMaxRank = 1 << 16;

// One codec setting; the key that carries its strength is required, the others are unknown keys.
CodecSetting read_codec_setting(JsonReader section) {
  CodecSetting setting;
  setting.kind = static_cast<CodecKind>(section.choice("codec", kCodecs));
  switch (setting.kind) {
    case CodecKind::low_rank:
      setting.rank = static_cast<int>(section.integer("rank", {.min = 1, .max = kMaxRank}));
      break;
    case CodecKind::top_k:
    case CodecKind::random_k:
      setting.ratio = section.number("ratio", {.min = 0.0, .max = 1.0, .exclusive_min = true});
      break;
    case CodecKind::quantize:
      setting.bits = static_cast<int>(section.integer("bits", {.min = 2, .max = 8}));
      if (setting.bits != 2 && setting.bits != 4 && setting.bits != 8) {
        section.fail("bits", "must be 2, 4 or 8");
      }
      break;
    case CodecKind::cast:
      break;
  }
  setting.error_feedback =
      static_cast<ErrorFeedback>(section.choice("error_feedback", kErrorFeedback, 0));
  for (JsonReader& candidate : section.sections("candidates")) {
    static_cast<void>(read_codec_setting(candidate));
  }
  section.finish();
  return setting;
}

}  // namespace

CompressConfig read_compress_config(JsonReader section) {
  CompressConfig config;
  config.policy = static_cast<CompressionPolicy>(section.choice("policy", kPolicies, 0));
  if (config.policy != CompressionPolicy::none) {
    section.fail("policy", "compression is not built yet; use \"none\"");
  }
  for (const std::string_view site : kReservedSites) {
    if (section.has(site)) {
      section.fail(site, "this site is reserved and not built yet; remove it");
    }
  }
  for (const std::string_view site : kSites) {
    if (section.has(site)) {
      config.sites.emplace(site, read_codec_setting(section.section(site)));
    }
  }
  // Keys of policies that are not built yet: checked for type, unused.
  static_cast<void>(section.boolean("epilogue_only", true));
  static_cast<void>(section.integer("stages", {.default_value = 0, .min = 0}));
  static_cast<void>(section.string("plan", ""));
  section.finish();
  return config;
}

}  // namespace slackline
