#include "compress/codec.h"

#include <utility>

#include "compress/codec_traits.h"
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
  return traits_of(setting.kind).make(setting, std::move(parts), seed, device);
}

}  // namespace slackline
