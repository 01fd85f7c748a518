#include "compress/codec_setting.h"

#include <fmt/format.h>

#include "compress/codec_traits.h"

namespace slackline {

const char* name_of(CodecKind kind) {
  return traits_of(kind).name;
}

std::string short_text(const CodecSetting& setting) {
  const CodecTraits& traits = traits_of(setting.kind);
  return traits.strength == nullptr ? traits.name
                                    : fmt::format("{} {}", traits.name, traits.strength(setting));
}

}  // namespace slackline
