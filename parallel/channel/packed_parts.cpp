#include "parallel/channel/packed_parts.h"

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

void copy_packed(StreamView stream,
                 const std::vector<SummedPart>& parts,
                 const Tensor& row,
                 const Buffer& packed,
                 Packing packing) {
  std::size_t offset = 0;
  for (const SummedPart& part : parts) {
    const Tensor own = part.of(row);
    const Tensor copy = packed.view(DType::f32, part.shape, offset);
    packing == Packing::pack ? cast(stream, own, copy) : cast(stream, copy, own);
    offset += copy.bytes();
  }
}

}  // namespace slackline
