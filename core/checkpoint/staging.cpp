#include "core/checkpoint/staging.h"

#include <vector>

#include "core/check.h"
#include "core/tensor/dtype.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

// Copies a piece to `to` in row-major order, in the data's type.
void copy_piece(const CheckpointTensor& tensor, std::byte* to) {
  const Shape& shape = tensor.shape();
  const LocalPlace place = tensor.place ? *tensor.place : LocalPlace{shape, whole_region(shape)};
  SL_CHECK(is_held(place, tensor.data.num_elements()), "place of " + tensor.name);
  const HostTensor data(tensor.data);
  auto* from = static_cast<std::byte*>(data.tensor().raw());
  copy_rectangle({from, place.shape, place.region.start, place.first},
                 {to, shape, whole_region(shape).start},
                 shape,
                 size_of(tensor.data.dtype()));
}

// The same, as f32.
void widen_piece(const CheckpointTensor& tensor, float* to) {
  SL_CHECK(tensor.data.dtype() == DType::bf16, "only bf16 is widened: " + tensor.name);
  std::vector<BFloat16> narrow(tensor.shape().num_elements());
  copy_piece(tensor, reinterpret_cast<std::byte*>(narrow.data()));
  for (const BFloat16 value : narrow) {
    *to++ = static_cast<float>(value);
  }
}

}  // namespace

std::size_t staging_bytes(const CheckpointContents& contents) {
  std::size_t bytes = 0;
  for (const CheckpointTensor& tensor : contents.tensors) {
    bytes += tensor.bytes();
  }
  return bytes;
}

CheckpointContents staged(const CheckpointContents& contents, Buffer& memory) {
  const std::size_t bytes = staging_bytes(contents);
  if (memory.bytes() < bytes) {
    memory = Buffer();  // gives the old one back before asking for the new one
    memory = Buffer("checkpoint staging", bytes);
  }
  CheckpointContents copies = contents;
  std::size_t offset = 0;
  for (CheckpointTensor& tensor : copies.tensors) {
    std::byte* copy = memory.data() + offset;
    tensor.widens ? widen_piece(tensor, reinterpret_cast<float*>(copy)) : copy_piece(tensor, copy);
    offset += tensor.bytes();
    tensor.data = Tensor(copy, tensor.written_type(), tensor.shape());
    tensor.place.reset();
    tensor.widens = false;
  }
  return copies;
}

}  // namespace slackline
