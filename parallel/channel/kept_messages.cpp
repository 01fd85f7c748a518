#include "parallel/channel/kept_messages.h"

#include <algorithm>

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

std::size_t KeptMessages::num_elements(schedule::Site site, int stage) const {
  std::size_t elements = 0;
  for (const Message& message : messages_) {
    elements += message.site == site && message.stage == stage ? message.shape.num_elements() : 0;
  }
  return elements;
}

void KeptMessages::keep(StreamView stream,
                        schedule::Site site,
                        int stage,
                        const Tensor& matrix,
                        const Tensor& moments) {
  const std::size_t kept = num_elements(site, stage);
  if (kept > 0 && kept + matrix.num_elements() > kMostElements) {
    return;
  }
  const std::int64_t columns = matrix.shape()[1];
  const std::int64_t most_rows = static_cast<std::int64_t>(kMostElements) / columns;
  const std::int64_t rows = std::min(matrix.shape()[0], std::max<std::int64_t>(1, most_rows));
  Message& message = messages_.emplace_back();
  message = {.site = site,
             .stage = stage,
             .whole = {.rows = matrix.shape()[0], .columns = columns},
             .shape = {.rows = rows, .columns = columns},
             .memory = make_buffer(
                 "kept message", DType::f32, {rows, columns}, backing_of(matrix.device()))};
  cast(stream, matrix.rows(0, rows), message.values());
  if (!moments.empty()) {
    message.moments_memory =
        make_buffer("kept moments", DType::f32, {rows, columns}, backing_of(matrix.device()));
    cast(stream, moments.rows(0, rows), message.moments());
  }
}

}  // namespace slackline
