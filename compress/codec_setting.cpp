#include "compress/codec_setting.h"

#include <array>

#include <fmt/format.h>

namespace slackline {

const char* name_of(CodecKind kind) {
  constexpr std::array<const char*, 5> kNames = {
      "low_rank", "top_k", "random_k", "quantize", "cast"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string short_text(const CodecSetting& setting) {
  const char* name = name_of(setting.kind);
  switch (setting.kind) {
    case CodecKind::low_rank:
      return fmt::format("{} {}", name, setting.rank);
    case CodecKind::top_k:
    case CodecKind::random_k:
      return fmt::format("{} {:g}", name, setting.ratio);
    case CodecKind::quantize:
      return fmt::format("{} {}", name, setting.bits);
    case CodecKind::cast:
      break;
  }
  return name;
}

}  // namespace slackline
