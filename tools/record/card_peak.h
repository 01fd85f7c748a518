#pragma once

#include <string_view>

#include "core/tensor/dtype.h"

namespace slackline {

// Operations a second that a card's units for this type can do, without sparsity, from its vendor's
// data sheet; 0 where the card is not in the table. `name` begins with what the driver calls it.
[[nodiscard]] double dense_peak_flops(std::string_view name, DType dtype);

// Bytes a second of its memory, from the same source; 0 where the card is not in the table.
[[nodiscard]] double peak_bytes_per_second(std::string_view name);

}  // namespace slackline
