#include "parallel/plan/compression_quality.h"

#include <cmath>

namespace slackline {

namespace {

// Nothing lost of nothing is no error.
double relative(double error, double raw) {
  return error == 0.0 ? 0.0 : std::sqrt(error / raw);
}

}  // namespace

ClassQuality quality_of(const schedule::TransferClass& members, const MessageSums& sums) {
  ClassQuality quality{.members = members,
                       .elements = static_cast<std::int64_t>(sums.elements),
                       .relative_error = relative(sums.error, sums.raw),
                       .cosine = sums.product / std::sqrt(sums.raw * sums.sent),
                       .raw_norm = std::sqrt(sums.raw),
                       .residual_norm = std::sqrt(sums.residual)};
  if (sums.pair_elements > 0.0) {
    const double count = sums.pair_elements;
    quality.lazy = {
        .activation_cosine = sums.left_by_difference / std::sqrt(sums.left * sums.difference),
        .residual_mean = sums.left_sum / count,
        .residual_rms = std::sqrt(sums.left / count),
        .activation_difference_mean = sums.difference_sum / count,
        .activation_difference_rms = std::sqrt(sums.difference / count)};
  }
  return quality;
}

double lost_share(const ClassQuality& quality, ErrorFeedback error_feedback) {
  if (error_feedback == ErrorFeedback::none) {
    return quality.relative_error;
  }
  return quality.residual_norm == 0.0 ? 0.0 : quality.residual_norm / quality.raw_norm;
}

}  // namespace slackline
