#include "compress/expected_error.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compress/codec_bytes.h"

namespace slackline {

namespace {

// Share of normal values beyond `threshold` on both sides.
double share_beyond(double threshold) {
  return std::erfc(threshold / std::numbers::sqrt2);
}

double threshold_of(double share) {
  double low = 0.0;
  double high = 40.0;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (share_beyond(middle) > share ? low : high) = middle;
  }
  return low;
}

// The energy of normal values beyond t is their share and 2 t times their density at t.
double lost_below_threshold(double share) {
  const double t = threshold_of(share);
  const double density = std::exp(-0.5 * t * t) / std::sqrt(2.0 * std::numbers::pi);
  return std::sqrt(std::max(0.0, 1.0 - share - 2.0 * t * density));
}

}  // namespace

double expected_error(const CodecSetting& setting, const MatrixShape& shape) {
  switch (setting.kind) {
    case CodecKind::low_rank: {
      const auto rank = static_cast<double>(factor_rank(setting, shape));
      const auto most = static_cast<double>(std::min(shape.rows, shape.columns));
      return std::sqrt(1.0 - rank / most);
    }
    case CodecKind::top_k:
      return lost_below_threshold(setting.ratio);
    case CodecKind::random_k:
      return std::sqrt(1.0 - setting.ratio);
    case CodecKind::quantize:
      return setting.bits == 8 ? 0.0069 : setting.bits == 4 ? 0.11 : 0.45;
    case CodecKind::cast:
      break;
  }
  return 0.0017;
}

}  // namespace slackline
