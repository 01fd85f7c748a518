#include "core/comm/links/scaled_communicator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace slackline {

namespace {

class ScaledCommunicator final : public Communicator {
 public:
  ScaledCommunicator(std::unique_ptr<Communicator> inner, double scale)
      : inner_(std::move(inner)), scale_(scale) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }

  [[nodiscard]] int size() const override { return inner_->size(); }

  [[nodiscard]] const std::string& axis() const override { return inner_->axis(); }

  Transfer send(const Tensor& data,
                int to,
                const TransferNote& note,
                const TransferWork& work) override {
    return inner_->send(cut(data), to, note, work);
  }

  Transfer receive(const Tensor& data,
                   int from,
                   const TransferNote& note,
                   const TransferWork& work) override {
    return inner_->receive(cut(data), from, note, work);
  }

  Transfer all_reduce(const Tensor& data,
                      const TransferNote& note,
                      SumOrder order,
                      const TransferWork& work) override {
    return inner_->all_reduce(cut(data), noted(note, data), order, work);
  }

  Transfer reduce_scatter(const Tensor& data,
                          const TransferNote& note,
                          SumOrder order,
                          const TransferWork& work) override {
    return inner_->reduce_scatter(cut(data), noted(note, data), order, work);
  }

  Transfer all_gather(const Tensor& data,
                      const TransferNote& note,
                      const TransferWork& work) override {
    return inner_->all_gather(cut(data), noted(note, data), work);
  }

  Transfer all_to_all(const Tensor& from,
                      const Tensor& to,
                      const TransferNote& note,
                      const TransferWork& work) override {
    return inner_->all_to_all(cut(from, size()), cut(to, size()), note, work);
  }

  Transfer broadcast(const Tensor& data,
                     int root,
                     const TransferNote& note,
                     const TransferWork& work) override {
    return inner_->broadcast(cut(data), root, note, work);
  }

  Transfer barrier(const TransferNote& note) override { return inner_->barrier(note); }

  std::unique_ptr<Communicator> group(const std::string& axis,
                                      const std::vector<int>& members,
                                      Urgency urgency) override {
    return scaled(inner_->group(axis, members, urgency), scale_);
  }

  [[nodiscard]] std::size_t bytes_sent() const override { return inner_->bytes_sent(); }

  [[nodiscard]] std::size_t bytes_sent_across() const override {
    return inner_->bytes_sent_across();
  }

  void record_transfers(bool on) override { inner_->record_transfers(on); }

  [[nodiscard]] std::vector<TransferRecord> take_records() override {
    return inner_->take_records();
  }

  [[nodiscard]] double now() const override { return inner_->now(); }

  [[nodiscard]] const std::vector<int>& nodes() const override { return inner_->nodes(); }

  void set_links(const Cluster& links) override { inner_->set_links(links); }

  void set_hierarchy(const Hierarchy& hierarchy) override { inner_->set_hierarchy(hierarchy); }

  [[nodiscard]] const Hierarchy& hierarchy() const override { return inner_->hierarchy(); }

  void fail(const std::string& reason) override { inner_->fail(reason); }

  [[nodiscard]] bool has_failed() const override { return inner_->has_failed(); }

 private:
  // Says which message a cut one stands for.
  [[nodiscard]] static TransferNote noted(TransferNote note, const Tensor& data) {
    note.whole_bytes = data.bytes();
    return note;
  }

  // The first elements of a message: 1 / scale of them, a multiple of `multiple`.
  [[nodiscard]] Tensor cut(const Tensor& data, int multiple = 1) const {
    const bool counted =
        data.dtype() == DType::f32 || data.dtype() == DType::bf16 || data.dtype() == DType::u8;
    const auto elements = static_cast<std::int64_t>(data.num_elements());
    if (!counted || elements == 0) {
      return data;
    }
    const auto parts = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(elements) / scale_ / static_cast<double>(multiple)));
    return {data.raw(), data.dtype(), {std::min(elements, parts * multiple)}, data.device()};
  }

  std::unique_ptr<Communicator> inner_;
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
