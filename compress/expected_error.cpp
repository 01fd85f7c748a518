#include "compress/expected_error.h"

#include "compress/codec_traits.h"

namespace slackline {

double expected_error(const CodecSetting& setting, const MatrixShape& shape) {
  return traits_of(setting.kind).expected_error(setting, shape);
}

}  // namespace slackline
