#include "compress/residuals.h"

#include <algorithm>
#include <functional>
#include <span>

#include "core/arena.h"
#include "core/check.h"

namespace slackline {

namespace {

Shape shape_of(const CodecPart& part) {
  return {part.shape.rows, part.shape.columns};
}

std::size_t bytes_of(const std::vector<CodecPart>& parts) {
  std::size_t bytes = 0;
  for (const CodecPart& part : parts) {
    bytes += Arena::aligned_bytes(DType::f32, shape_of(part));
  }
  return bytes;
}

int num_residuals(ErrorFeedback feedback, int messages) {
  switch (feedback) {
    case ErrorFeedback::none:
      return 0;
    case ErrorFeedback::immediate:
      return messages;
    case ErrorFeedback::lazy:
      break;
  }
  return 1;
}

}  // namespace

Residuals::Residuals(ErrorFeedback feedback, const std::vector<CodecPart>& parts, int messages) {
  for (int i = 0; i < num_residuals(feedback, messages); ++i) {
    Buffer& buffer = buffers_.emplace_back("residual", bytes_of(parts));
    buffer.fill_zero();
    Codec::Matrices& tensors = tensors_.emplace_back();
    std::size_t offset = 0;
    for (const CodecPart& part : parts) {
      tensors.push_back(buffer.view(DType::f32, shape_of(part), offset));
      offset += Arena::aligned_bytes(DType::f32, shape_of(part));
    }
  }
}

const Codec::Matrices& Residuals::of(int index) const {
  static const Codec::Matrices kNone;
  if (tensors_.empty()) {
    return kNone;
  }
  return tensors_.size() == 1 ? tensors_.front() : tensors_.at(static_cast<std::size_t>(index));
}

void Residuals::add(const Residuals& other) {
  SL_CHECK_EQ(tensors_.size(), other.tensors_.size());
  for (std::size_t message = 0; message < tensors_.size(); ++message) {
    for (std::size_t i = 0; i < tensors_[message].size(); ++i) {
      const std::span<float> own = tensors_[message][i].span<float>();
      const std::span<const float> more = other.tensors_[message][i].span<float>();
      SL_CHECK_EQ(own.size(), more.size());
      std::transform(own.begin(), own.end(), more.begin(), own.begin(), std::plus<>());
    }
  }
}

std::size_t Residuals::bytes(ErrorFeedback feedback,
                             const std::vector<CodecPart>& parts,
                             int messages) {
  return static_cast<std::size_t>(num_residuals(feedback, messages)) * bytes_of(parts);
}

}  // namespace slackline
