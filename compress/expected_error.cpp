#include "compress/expected_error.h"

#include <numbers>

#include "compress/codec_traits.h"

namespace slackline {

double growth_of_error(const CodecSetting& setting) {
  return setting.sum == SumWay::two_shot ? std::numbers::sqrt2 : 1.0;
}

double expected_error(const CodecSetting& setting, const MatrixShape& shape) {
  return growth_of_error(setting) * traits_of(setting.kind).expected_error(setting, shape);
}

}  // namespace slackline
