#include "tools/infer/conditional_entropy.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "core/check.h"

// With n(w) the number of times that window w of order + 1 bytes occurs, n(c) that of windows that
// begin with the context c, and N the number of all windows:
//
//   H = -sum_w n(w) / N ln(n(w) / n(c))  =  (sum_c n(c) ln n(c) - sum_w n(w) ln n(w)) / N

namespace slackline {

namespace {

// A window or context of up to four bytes, the latest byte lowest.
using Counts = std::unordered_map<std::uint32_t, std::uint64_t>;

Counts count_windows(std::string_view text, int order) {
  const std::uint32_t mask = 0xFFFFFFFFU >> (8 * (kMaxEntropyOrder - order));
  Counts windows;
  std::uint32_t window = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    window = ((window << 8U) | static_cast<unsigned char>(text[i])) & mask;
    if (i >= static_cast<std::size_t>(order)) {
      ++windows[window];
    }
  }
  return windows;
}

double sum_of_n_log_n(const Counts& counts) {
  double sum = 0.0;
  for (const auto& [key, count] : counts) {
    const auto n = static_cast<double>(count);
    sum += n * std::log(n);
  }
  return sum;
}

}  // namespace

double conditional_entropy(std::string_view text, int order) {
  SL_CHECK(order >= 0 && order <= kMaxEntropyOrder, "an order of 0 to 3");
  if (text.size() <= static_cast<std::size_t>(order)) {
    return 0.0;
  }
  const Counts windows = count_windows(text, order);
  Counts contexts;
  for (const auto& [window, count] : windows) {
    contexts[window >> 8U] += count;
  }
  const auto num_windows = static_cast<double>(text.size() - static_cast<std::size_t>(order));
  return (sum_of_n_log_n(contexts) - sum_of_n_log_n(windows)) / num_windows;
}

}  // namespace slackline
