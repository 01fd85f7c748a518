#include "compress/codec_setting.h"

#include <fmt/format.h>

#include "compress/codec_traits.h"

namespace slackline {

const char* name_of(CodecKind kind) {
  return traits_of(kind).name;
}

std::string short_text(const CodecSetting& setting) {
  const CodecTraits& traits = traits_of(setting.kind);
  return fmt::format("{}{}{}",
                     traits.name,
                     traits.strength == nullptr ? "" : fmt::format(" {}", traits.strength(setting)),
                     setting.sum == SumWay::two_shot ? " two_shot" : "");
}

CodecSetting setting_of_calls(const CodecSetting& setting) {
  CodecSetting calls = setting;
  calls.sum = SumWay::gather;
  return calls;
}

}  // namespace slackline
