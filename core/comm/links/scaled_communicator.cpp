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

  Transfer send(const Tensor& data,
                int to,
                const TransferNote& note,
                const TransferWork& work) override {
    return real().send(cut(data), to, noted(note, data), work);
  }

  Transfer receive(const Tensor& data,
                   int from,
                   const TransferNote& note,
                   const TransferWork& work) override {
    return real().receive(cut(data), from, noted(note, data), work);
  }

  Transfer all_reduce(const Tensor& data,
                      const TransferNote& note,
                      SumOrder order,
                      const TransferWork& work) override {
    return real().all_reduce(cut(data), noted(note, data), order, work);
  }

  Transfer reduce_scatter(const Tensor& data,
                          const TransferNote& note,
                          SumOrder order,
                          const TransferWork& work) override {
    return real().reduce_scatter(cut(data), noted(note, data), order, work);
  }

  Transfer all_gather(const Tensor& data,
                      const TransferNote& note,
                      const TransferWork& work) override {
    return real().all_gather(cut(data), noted(note, data), work);
  }

  Transfer all_to_all(const Tensor& from,
                      const Tensor& to,
                      const TransferNote& note,
                      const TransferWork& work) override {
    return real().all_to_all(cut(from, size()), cut(to, size()), noted(note, from), work);
  }

  Transfer broadcast(const Tensor& data,
                     int root,
                     const TransferNote& note,
                     const TransferWork& work) override {
    return real().broadcast(cut(data), root, noted(note, data), work);
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

  // Says which message a cut one stands for.
  [[nodiscard]] static TransferNote noted(TransferNote note, const Tensor& data) {
    note.whole_bytes = is_cut(data) ? data.bytes() : 0;
    return note;
  }

  // The first elements of a message: 1 / scale of them, a multiple of `multiple`.
  [[nodiscard]] Tensor cut(const Tensor& data, int multiple = 1) const {
    const auto elements = static_cast<std::int64_t>(data.num_elements());
    if (!is_cut(data) || elements == 0) {
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
