#include "core/comm/links/scaled_communicator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/comm/forwarding_communicator.h"

namespace slackline {

namespace {

class ScaledCommunicator final : public ForwardingCommunicator {
 public:
  ScaledCommunicator(std::unique_ptr<Communicator> inner, double scale)
      : ForwardingCommunicator(std::move(inner)), scale_(scale) {}

  Transfer submit(Operation operation) override {
    if (is_cut(operation.data) && operation.kind != Kind::barrier) {
      operation.note.whole_bytes = operation.data.bytes();
      const int multiple = operation.kind == Kind::all_to_all ? size() : 1;
      operation.data = cut(operation.data, multiple);
      operation.to = cut(operation.to, multiple);
    }
    return real().submit(std::move(operation));
  }

  std::unique_ptr<Communicator> group(const std::string& axis,
                                      const std::vector<int>& members,
                                      Urgency urgency) override {
    return scaled(real().group(axis, members, urgency), scale_);
  }

 private:
  [[nodiscard]] static bool is_cut(const Tensor& data) {
    return data.dtype() == DType::f32 || data.dtype() == DType::bf16 || data.dtype() == DType::u8;
  }

  // The first elements of a message: 1 / scale of them, a multiple of `multiple`.
  [[nodiscard]] Tensor cut(const Tensor& data, int multiple) const {
    const auto elements = static_cast<std::int64_t>(data.num_elements());
    if (elements == 0) {
      return data;
    }
    const auto parts = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(elements) / scale_ / static_cast<double>(multiple)));
    return {data.raw(), data.dtype(), {std::min(elements, parts * multiple)}, data.device()};
  }

  double scale_;
};

}  // namespace

std::unique_ptr<Communicator> scaled(std::unique_ptr<Communicator> inner, double scale) {
  SL_CHECK(scale >= 1.0, "scale " + std::to_string(scale));
  if (inner == nullptr || scale == 1.0) {
    return inner;
  }
  return std::make_unique<ScaledCommunicator>(std::move(inner), scale);
}

}  // namespace slackline
