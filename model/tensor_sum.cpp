#include "model/tensor_sum.h"

#include <cstring>

namespace slackline {

Transfer NoTensorSum::collect(const Tensor& own, const Tensor& all) {
  SL_CHECK_EQ(own.bytes(), all.bytes());
  if (own.bytes() > 0) {
    std::memcpy(all.raw(), own.raw(), own.bytes());
  }
  return {};
}

}  // namespace slackline
