#include "compress/codec.h"

#include <utility>

#include "compress/codec_factories.h"
#include "core/check.h"

namespace slackline {

namespace {

constexpr const char* kNoSums = "this codec's messages do not add";

}  // namespace

Tensor Codec::addend(int /*round*/) {
  SL_CHECK(false, kNoSums);
  return {};
}

void Codec::begin_sum(StreamView /*stream*/,
                      const Matrices& /*values*/,
                      const Matrices& /*residual*/,
                      const MessageKey& /*key*/) {
  SL_CHECK(false, kNoSums);
}

void Codec::next_sum(StreamView /*stream*/,
                     const Matrices& /*values*/,
                     const Matrices& /*residual*/) {
  SL_CHECK(false, kNoSums);
}

void Codec::finish_sum(StreamView /*stream*/,
                       const Matrices& /*out*/,
                       const Matrices& /*residual*/,
                       int /*ranks*/) {
  SL_CHECK(false, kNoSums);
}

void Codec::mask(StreamView /*stream*/, const Tensor& /*frame*/, const Tensor& /*gradient*/) const {
  SL_CHECK(false, "this codec does not mask gradients");
}

std::unique_ptr<Codec> make_codec(const CodecSetting& setting,
                                  std::vector<CodecPart> parts,
                                  std::uint64_t seed,
                                  Device device) {
  switch (setting.kind) {
    case CodecKind::low_rank:
      return make_low_rank_codec(setting, std::move(parts), seed, device);
    case CodecKind::top_k:
      return make_top_k_codec(setting, std::move(parts));
    case CodecKind::random_k:
      return make_random_k_codec(setting, std::move(parts), seed, device);
    case CodecKind::quantize:
      return make_quantize_codec(setting, std::move(parts));
    case CodecKind::cast:
      break;
  }
  return make_cast_codec(std::move(parts), device);
}

}  // namespace slackline
