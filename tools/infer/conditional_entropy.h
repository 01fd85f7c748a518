#pragma once

#include <string_view>

namespace slackline {

inline constexpr int kMaxEntropyOrder = 3;

// Entropy, in nats a byte, of a byte of `text` given the `order` bytes before it: the plug-in
// estimate, that is, with the frequencies of `text` itself as probabilities. A text with too few
// bytes for its contexts is therefore underestimated. A text of `order` bytes or fewer has 0.
//
// A model that predicts every byte from the `order` bytes before it, and does so as well as any
// table can, has this as its loss.
// REQUIRES: 0 <= order <= kMaxEntropyOrder.
[[nodiscard]] double conditional_entropy(std::string_view text, int order);

}  // namespace slackline
