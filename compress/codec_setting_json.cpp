#include "compress/codec_setting_json.h"

#include <array>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace slackline {

namespace {

constexpr std::array<std::string_view, 5> kCodecs = {
    "low_rank", "top_k", "random_k", "quantize", "cast"};
constexpr std::array<std::string_view, 3> kErrorFeedback = {"none", "immediate", "lazy"};
constexpr std::array<std::string_view, 2> kFloats = {"fp32", "bf16"};
constexpr std::array<std::string_view, 2> kOrthogonalizations = {"blocked", "gram_schmidt"};
constexpr std::array<std::string_view, 4> kScales = {"channel", "token", "group", "tensor"};
constexpr std::array<std::string_view, 2> kRoundings = {"nearest", "stochastic"};
constexpr std::int64_t kMaxRank = 1 << 16;
constexpr std::int64_t kMaxGroup = 1 << 20;
constexpr CodecSetting kDefaults;

template <typename Enum, std::size_t size>
Enum read_choice(JsonReader& section,
                 std::string_view key,
                 const std::array<std::string_view, size>& names,
                 Enum default_value) {
  return static_cast<Enum>(section.choice(key, names, static_cast<std::size_t>(default_value)));
}

DType read_float(JsonReader& section, std::string_view key) {
  return section.choice(key, kFloats, 0) == 0 ? DType::f32 : DType::bf16;
}

int read_bits(JsonReader& section) {
  const auto bits = section.integer("bits", {.min = 2, .max = 8});
  if (bits != 2 && bits != 4 && bits != 8) {
    section.fail("bits", "must be 2, 4 or 8");
  }
  return static_cast<int>(bits);
}

template <typename Enum, std::size_t size>
std::string unless_default(const char* key,
                           const std::array<std::string_view, size>& names,
                           Enum value,
                           Enum default_value) {
  return value == default_value
             ? ""
             : fmt::format(R"(, "{}": "{}")", key, names[static_cast<std::size_t>(value)]);
}

std::string unless_fp32(const char* key, DType dtype) {
  return dtype == DType::f32 ? "" : fmt::format(R"(, "{}": "bf16")", key);
}

std::string own_keys(const CodecSetting& setting) {
  switch (setting.kind) {
    case CodecKind::low_rank:
      return fmt::format(R"(, "rank": {}{}{})",
                         setting.rank,
                         unless_fp32("factors", setting.factors),
                         unless_default("orthogonalization",
                                        kOrthogonalizations,
                                        setting.orthogonalization,
                                        kDefaults.orthogonalization));
    case CodecKind::top_k:
    case CodecKind::random_k:
      return fmt::format(
          R"(, "ratio": {}{})", setting.ratio, unless_fp32("values", setting.values));
    case CodecKind::quantize:
      return fmt::format(
          R"(, "bits": {}{}{}{})",
          setting.bits,
          unless_default("scale", kScales, setting.scale, kDefaults.scale),
          setting.scale == ScaleOf::group ? fmt::format(R"(, "group": {})", setting.group) : "",
          unless_default("rounding", kRoundings, setting.rounding, kDefaults.rounding));
    case CodecKind::cast:
      break;
  }
  return "";
}

}  // namespace

CodecSetting read_codec_setting(JsonReader& section) {
  CodecSetting setting;
  setting.kind = static_cast<CodecKind>(section.choice("codec", kCodecs));
  switch (setting.kind) {
    case CodecKind::low_rank:
      setting.rank = static_cast<int>(section.integer("rank", {.min = 1, .max = kMaxRank}));
      setting.factors = read_float(section, "factors");
      setting.orthogonalization = read_choice(
          section, "orthogonalization", kOrthogonalizations, kDefaults.orthogonalization);
      break;
    case CodecKind::top_k:
    case CodecKind::random_k:
      setting.ratio = section.number("ratio", {.min = 0.0, .max = 1.0, .exclusive_min = true});
      setting.values = read_float(section, "values");
      break;
    case CodecKind::quantize:
      setting.bits = read_bits(section);
      setting.scale = read_choice(section, "scale", kScales, kDefaults.scale);
      if (setting.scale == ScaleOf::group) {
        setting.group = static_cast<int>(section.integer(
            "group", {.default_value = kDefaults.group, .min = 8, .max = kMaxGroup}));
      }
      setting.rounding = read_choice(section, "rounding", kRoundings, kDefaults.rounding);
      break;
    case CodecKind::cast:
      break;
  }
  setting.error_feedback =
      read_choice(section, "error_feedback", kErrorFeedback, kDefaults.error_feedback);
  setting.always = section.boolean("always", kDefaults.always);
  return setting;
}

std::string codec_setting_json(const CodecSetting& setting) {
  return fmt::format(
      R"({{"codec": "{}"{}{}{}}})",
      name_of(setting.kind),
      own_keys(setting),
      unless_default(
          "error_feedback", kErrorFeedback, setting.error_feedback, kDefaults.error_feedback),
      setting.always ? R"(, "always": true)" : "");
}

}  // namespace slackline
