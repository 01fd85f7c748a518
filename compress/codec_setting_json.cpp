#include "compress/codec_setting_json.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "compress/codec_keys.h"
#include "compress/codec_traits.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 3> kErrorFeedback = {"none", "immediate", "lazy"};
constexpr std::array<std::string_view, 5> kReservedCodecs = {
    "autoencoder", "bottleneck", "maxout", "block_quantize", "hadamard_quantize"};
constexpr std::array<std::string_view, 2> kReservedFeedback = {"ef21", "aq_sgd"};
constexpr std::array<std::string_view, 2> kSumWays = {"gather", "two_shot"};
constexpr CodecSetting kDefaults;

std::array<std::string_view, kNumCodecs> codec_names() {
  std::array<std::string_view, kNumCodecs> names;
  for (std::size_t i = 0; i < kNumCodecs; ++i) {
    names.at(i) = name_of(static_cast<CodecKind>(i));
  }
  return names;
}

SumWay read_sum_way(JsonReader& section, const CodecSetting& setting) {
  const SumWay way = read_choice(section, "sum", kSumWays, kDefaults.sum);
  if (way == SumWay::two_shot && !is_summed_in_two_shots(setting)) {
    section.fail("sum",
                 fmt::format("must be \"gather\" with codec \"{}\"{}: ranks code sums of rows of "
                             "their own anew, which quantize can in units of values",
                             name_of(setting.kind),
                             needs_moments(setting) ? " in units of moments" : ""));
  }
  return way;
}

}  // namespace

CodecSetting read_codec_setting(JsonReader& section, const CodecSetting& defaults) {
  CodecSetting setting;
  section.refuse_reserved("codec", kReservedCodecs);
  section.refuse_reserved("error_feedback", kReservedFeedback);
  section.refuse_reserved("from_layer");
  setting.kind = static_cast<CodecKind>(section.choice("codec", codec_names()));
  const CodecTraits& traits = traits_of(setting.kind);
  if (traits.read != nullptr) {
    traits.read(section, defaults, setting);
  }
  setting.error_feedback =
      read_choice(section, "error_feedback", kErrorFeedback, defaults.error_feedback);
  setting.always = section.boolean("always", defaults.always);
  setting.sum = read_sum_way(section, setting);
  return setting;
}

std::string codec_setting_json(const CodecSetting& setting) {
  const CodecTraits& traits = traits_of(setting.kind);
  return fmt::format(
      R"({{"codec": "{}"{}{}{}{}}})",
      traits.name,
      traits.keys == nullptr ? "" : traits.keys(setting),
      unless_default(
          "error_feedback", kErrorFeedback, setting.error_feedback, kDefaults.error_feedback),
      setting.always ? R"(, "always": true)" : "",
      unless_default("sum", kSumWays, setting.sum, kDefaults.sum));
}

std::string codec_setting_json(const std::optional<CodecSetting>& setting) {
  return setting ? codec_setting_json(*setting) : "null";
}

}  // namespace slackline
