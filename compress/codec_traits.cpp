#include "compress/codec_traits.h"

#include <array>
#include <utility>

namespace slackline {

extern const CodecTraits kLowRankTraits;
extern const CodecTraits kTopKTraits;
extern const CodecTraits kRandomKTraits;
extern const CodecTraits kQuantizeTraits;
extern const CodecTraits kCastTraits;

const CodecTraits& traits_of(CodecKind kind) {
  static constexpr std::array<const CodecTraits*, kNumCodecs> kTraits = {
      &kLowRankTraits, &kTopKTraits, &kRandomKTraits, &kQuantizeTraits, &kCastTraits};
  return *kTraits.at(static_cast<std::size_t>(kind));
}

std::unique_ptr<Codec> make_codec(const CodecSetting& setting,
                                  std::vector<CodecPart> parts,
                                  std::uint64_t seed,
                                  Device device) {
  return traits_of(setting.kind).make(setting, std::move(parts), seed, device);
}

bool needs_moments(const CodecSetting& setting) {
  const CodecTraits& traits = traits_of(setting.kind);
  return traits.needs_moments != nullptr && traits.needs_moments(setting);
}

bool is_summed_in_two_shots(const CodecSetting& setting) {
  const CodecTraits& traits = traits_of(setting.kind);
  return traits.cuts_by_rows && traits.sum_rounds == nullptr && !needs_moments(setting);
}

}  // namespace slackline
