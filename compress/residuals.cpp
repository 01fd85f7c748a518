#include "compress/residuals.h"

#include <algorithm>
#include <functional>
#include <span>

#include "core/check.h"
#include "core/tensor/arena.h"
#include "core/tensor/host_tensor.h"

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

Residuals::Residuals(ErrorFeedback feedback,
                     const std::vector<CodecPart>& parts,
                     int messages,
                     Device device) {
  for (int i = 0; i < num_residuals(feedback, messages); ++i) {
    Buffer& buffer = buffers_.emplace_back("residual", bytes_of(parts), backing_of(device));
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
  return tensors_.empty() ? kNone : tensors_.at(place_of(index));
}

void Residuals::take(int index, Residuals& other) {
  const Codec::Matrices& own = of(index);
  const Codec::Matrices& more = other.of(index);
  SL_CHECK_EQ(own.size(), more.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const HostTensor there(own[i]);
    const HostTensor here(more[i]);
    const std::span<float> to = there.tensor().span<float>();
    const std::span<float> from = here.tensor().span<float>();
    SL_CHECK_EQ(to.size(), from.size());
    std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<>());
    std::fill(from.begin(), from.end(), 0.0F);
    there.write_back();
    here.write_back();
  }
}

void Residuals::clear(int index) {
  if (!buffers_.empty()) {
    buffers_.at(place_of(index)).fill_zero();
  }
}

std::size_t Residuals::place_of(int index) const {
  return buffers_.size() == 1 ? 0 : static_cast<std::size_t>(index);
}

std::size_t Residuals::bytes(ErrorFeedback feedback,
                             const std::vector<CodecPart>& parts,
                             int messages) {
  return static_cast<std::size_t>(num_residuals(feedback, messages)) * bytes_of(parts);
}

}  // namespace slackline
