#include "compress/codec.h"

#include <utility>

#include "compress/frame.h"
#include "core/check.h"

namespace slackline {

namespace {

constexpr const char* kNoSums = "this codec's messages do not add";

}  // namespace

Tensor Codec::begin_sum(StreamView /*stream*/,
                        const Matrices& /*values*/,
                        const Matrices& /*residual*/,
                        const MessageKey& /*key*/) {
  SL_CHECK(false, kNoSums);
  return {};
}

Tensor Codec::next_sum(StreamView /*stream*/,
                       const Matrices& /*values*/,
                       const Matrices& /*residual*/) {
  SL_CHECK(false, kNoSums);
  return {};
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

}  // namespace slackline
