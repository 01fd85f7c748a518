#include "model/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/rng.h"

namespace slackline {

namespace {

void check_finite(std::span<const float> logits, std::uint64_t position) {
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  if (bad != logits.end()) {
    throw NonFiniteError("the logit of token " + std::to_string(bad - logits.begin()) +
                         " at position " + std::to_string(position) +
                         " is not finite: the weights come from a run that diverged");
  }
}

// The ids to draw from, ascending.
std::vector<std::int32_t> candidates(std::span<const float> logits, int top_k) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto k = static_cast<std::size_t>(top_k);
  if (k == 0 || k >= ids.size()) {
    return ids;
  }
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::nth_element(
      ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(k), ids.end(), more_likely);
  ids.resize(k);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits,
                          const SamplingOptions& options,
                          std::uint64_t position) {
  SL_CHECK(!logits.empty(), "no logits");
  SL_CHECK(options.temperature >= 0.0 && options.top_k >= 0, "sampling options out of range");
  check_finite(logits, position);
  const auto most_likely = std::max_element(logits.begin(), logits.end());  // the first of equals
  if (options.temperature == 0.0) {
    return static_cast<std::int32_t>(most_likely - logits.begin());
  }

  const std::vector<std::int32_t> ids = candidates(logits, options.top_k);
  std::vector<double> cumulative(ids.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double logit = logits[static_cast<std::size_t>(ids[i])];
    sum += std::exp((logit - double{*most_likely}) / options.temperature);
    cumulative[i] = sum;
  }
  const double drawn = sum * uniform_number(philox_key(options.seed, "sample"), position);
  // The first token whose sum exceeds the number drawn: a token of weight zero is never chosen.
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end() - 1, drawn);
  return ids[static_cast<std::size_t>(chosen - cumulative.begin())];
}

}  // namespace slackline
