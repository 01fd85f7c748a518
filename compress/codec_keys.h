#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "compress/codec_setting.h"
#include "core/json_reader.h"

namespace slackline {

// Codecs read and write their keys of a setting by these. What is written leaves defaults out; a
// key that is written follows a comma.

template <typename Enum, std::size_t size>
[[nodiscard]] Enum read_choice(JsonReader& section,
                               std::string_view key,
                               const std::array<std::string_view, size>& names,
                               Enum default_value) {
  return static_cast<Enum>(section.choice(key, names, static_cast<std::size_t>(default_value)));
}

template <typename Enum, std::size_t size>
[[nodiscard]] std::string unless_default(std::string_view key,
                                         const std::array<std::string_view, size>& names,
                                         Enum value,
                                         Enum default_value) {
  if (value == default_value) {
    return "";
  }
  std::string text = ", \"";
  text += key;
  text += "\": \"";
  text += names[static_cast<std::size_t>(value)];
  text += "\"";
  return text;
}

// "fp32" or "bf16", as values travel.
[[nodiscard]] DType read_float(JsonReader& section, std::string_view key);
[[nodiscard]] std::string unless_fp32(std::string_view key, DType dtype);

// top_k and random_k have the same keys: the share that is kept, and how its values travel.
void read_kept_share(JsonReader& section, const CodecSetting& defaults, CodecSetting& setting);
[[nodiscard]] std::string kept_share_keys(const CodecSetting& setting);
[[nodiscard]] std::string kept_share_text(const CodecSetting& setting);
[[nodiscard]] std::optional<CodecSetting> twice_kept(const CodecSetting& setting);

}  // namespace slackline
