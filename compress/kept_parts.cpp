#include "compress/kept_parts.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "compress/codec_bytes.h"
#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

Shape row(std::size_t count) {
  return {static_cast<std::int64_t>(count)};
}

}  // namespace

KeptParts::KeptParts(const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  parts_.reserve(parts.size());
  for (const CodecPart& part : parts) {
    const std::size_t kept = kept_elements(setting, part.shape);
    parts_.push_back({.elements = part.shape.num_elements(), .kept = kept, .first = total_});
    total_ += kept;
    largest_ = std::max(largest_, kept);
  }
  const std::size_t bytes = slackline::frame_bytes(setting, parts);
  SL_CHECK(bytes <= std::numeric_limits<std::uint32_t>::max(),  // and so do the elements
           fmt::format("a {} message of {} kept elements and {} bytes is too large for its header",
                       name_of(setting.kind),
                       total_,
                       bytes));
}

Tensor KeptParts::part(const Tensor& message, std::size_t matrix) const {
  const auto first = static_cast<std::int64_t>(parts_[matrix].first);
  return message.rows(first, first + static_cast<std::int64_t>(parts_[matrix].kept));
}

void KeptParts::check(const char* name, const Codec::Matrices& matrices) const {
  SL_CHECK(
      matrices.size() == parts_.size(),
      fmt::format("{} has {} matrices where {} are due", name, matrices.size(), parts_.size()));
  for (std::size_t m = 0; m < parts_.size(); ++m) {
    const bool fits =
        matrices[m].dtype() == DType::f32 && matrices[m].num_elements() == parts_[m].elements;
    SL_CHECK(fits,
             fmt::format("matrix {} of {} is {} {} where f32 of {} elements is due",
                         m,
                         name,
                         name_of(matrices[m].dtype()),
                         matrices[m].shape().to_string(),
                         parts_[m].elements));
  }
}

Tensor KeptParts::owed(StreamView stream,
                       const Codec::Matrices& values,
                       const Codec::Matrices& residual,
                       std::size_t matrix) const {
  const Tensor own = flat(values[matrix]);
  if (residual.empty()) {
    return own;
  }
  const Tensor sum = flat(residual[matrix]);
  accumulate(stream, own, sum);
  return sum;
}

Tensor flat(const Tensor& tensor) {
  return tensor.reshaped(row(tensor.num_elements()));
}

}  // namespace slackline
