#include "compress/codec_setting.h"

#include "compress/codec_traits.h"

namespace slackline {

const char* name_of(CodecKind kind) {
  return traits_of(kind).name;
}

std::string short_text(const CodecSetting& setting) {
  const CodecTraits& traits = traits_of(setting.kind);
  std::string text = traits.name;
  if (traits.strength != nullptr) {
    text += " " + traits.strength(setting);
  }
  return text;
}

}  // namespace slackline
