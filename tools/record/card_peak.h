#pragma once

#include <string_view>

#include "core/tensor/dtype.h"

namespace slackline {

// Operations a second that a card's units for this type can do, without sparsity, from its vendor's
// data sheet; 0 where the card is not in the table. `name` begins with what the driver calls it.
[[nodiscard]] double dense_peak_flops(std::string_view name, DType dtype);

}  // namespace slackline
