#include "compress/codec_keys.h"

#include <fmt/format.h>

namespace slackline {

namespace {

constexpr std::array<std::string_view, 2> kFloats = {"fp32", "bf16"};

}  // namespace

DType read_float(JsonReader& section, std::string_view key) {
  return section.choice(key, kFloats, 0) == 0 ? DType::f32 : DType::bf16;
}

std::string unless_fp32(std::string_view key, DType dtype) {
  return dtype == DType::f32 ? "" : fmt::format(R"(, "{}": "bf16")", key);
}

void read_kept_share(JsonReader& section, const CodecSetting& /*defaults*/, CodecSetting& setting) {
  setting.ratio = section.number("ratio", {.min = 0.0, .max = 1.0, .exclusive_min = true});
  setting.values = read_float(section, "values");
}

std::string kept_share_keys(const CodecSetting& setting) {
  return fmt::format(R"(, "ratio": {}{})", setting.ratio, unless_fp32("values", setting.values));
}

std::string kept_share_text(const CodecSetting& setting) {
  return fmt::format("{:g}", setting.ratio);
}

std::optional<CodecSetting> twice_kept(const CodecSetting& setting) {
  CodecSetting finer = setting;
  finer.ratio *= 2.0;
  return finer.ratio <= 1.0 ? std::make_optional(finer) : std::nullopt;
}

}  // namespace slackline
