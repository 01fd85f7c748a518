#include "core/comm/host_staged.h"

#include <cstddef>
#include <utility>

#include "core/check.h"
#include "core/cuda/cuda_memory.h"

namespace slackline {

void HostStaging::copy_to_host(const Tensor& from, const Tensor& to) const {
  SL_CHECK(compute_.has_value(), "a transfer of device memory before there is a stream");
  cuda::copy(compute_->cuda().handle(), to.raw(), from.raw(), from.bytes());
  compute_->synchronize();
}

void HostStaging::copy_to_device(const Tensor& from, const Tensor& to) const {
  SL_CHECK(compute_.has_value(), "a transfer of device memory before there is a stream");
  cuda::copy(compute_->cuda().handle(), to.raw(), from.raw(), from.bytes());
  compute_->synchronize();  // before the host's memory goes to somebody else
}

std::shared_ptr<const CudaEvent> HostStaging::computed() const {
  SL_CHECK(compute_.has_value(), "a transfer of device memory before there is a stream");
  auto event = std::make_shared<CudaEvent>();
  event->record(compute_->cuda());
  return event;
}

void HostStaging::follow_event(const CudaEvent& event) const {
  compute_->cuda().follow(event);
}

namespace {

// Elements [begin, end) of a tensor, as a row.
Tensor part_of(const Tensor& tensor, const Slice& slice) {
  auto* first = static_cast<std::byte*>(tensor.raw()) + slice.begin * size_of(tensor.dtype());
  return {first, tensor.dtype(), {static_cast<std::int64_t>(slice.count())}, tensor.device()};
}

// A transfer of a copy on the host, and what has to go to the device when it has ended.
class StagedState final : public Transfer::State {
 public:
  StagedState(std::shared_ptr<const HostStaging> staging,
              ScratchPool::Lease lease,
              Transfer transfer,
              std::optional<std::pair<Tensor, Tensor>> result)
      : staging_(std::move(staging)),
        lease_(std::move(lease)),
        transfer_(std::move(transfer)),
        result_(std::move(result)) {}

  void wait() override {
    transfer_.wait();
    if (result_) {
      staging_->copy_to_device(result_->first, result_->second);
      result_.reset();
    }
  }

  [[nodiscard]] bool done() const override { return transfer_.done(); }

  [[nodiscard]] const Transfer& transfer() const { return transfer_; }

 private:
  std::shared_ptr<const HostStaging> staging_;
  ScratchPool::Lease lease_;
  Transfer transfer_;  // ends before its memory
  std::optional<std::pair<Tensor, Tensor>> result_;
};

class HostStagedCommunicator final : public Communicator {
 public:
  HostStagedCommunicator(std::unique_ptr<Communicator> inner,
                         std::shared_ptr<const HostStaging> staging)
      : inner_(std::move(inner)), staging_(std::move(staging)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }

  [[nodiscard]] int size() const override { return inner_->size(); }

  [[nodiscard]] const std::string& axis() const override { return inner_->axis(); }

  Transfer send(const Tensor& data,
                int to,
                const TransferNote& note,
                const TransferWork& work) override {
    return moved(data, {.out = all_of(data)}, work, [&](const Tensor& host, const TransferWork& w) {
      return inner_->send(host, to, note, w);
    });
  }

  Transfer receive(const Tensor& data,
                   int from,
                   const TransferNote& note,
                   const TransferWork& work) override {
    return moved(data, {.in = all_of(data)}, work, [&](const Tensor& host, const TransferWork& w) {
      return inner_->receive(host, from, note, w);
    });
  }

  Transfer all_reduce(const Tensor& data,
                      const TransferNote& note,
                      SumOrder order,
                      const TransferWork& work) override {
    const Ways ways{.out = all_of(data), .in = all_of(data)};
    return moved(data, ways, work, [&](const Tensor& host, const TransferWork& w) {
      return inner_->all_reduce(host, note, order, w);
    });
  }

  Transfer reduce_scatter(const Tensor& data, const TransferNote& note, SumOrder order) override {
    const Ways ways{.out = all_of(data), .in = own_of(data)};
    return moved(data, ways, {}, [&](const Tensor& host, const TransferWork& /*work*/) {
      return inner_->reduce_scatter(host, note, order);
    });
  }

  Transfer all_gather(const Tensor& data,
                      const TransferNote& note,
                      const TransferWork& work) override {
    const Ways ways{.out = own_of(data), .in = all_of(data)};
    return moved(data, ways, work, [&](const Tensor& host, const TransferWork& w) {
      return inner_->all_gather(host, note, w);
    });
  }

  Transfer all_to_all(const Tensor& from, const Tensor& to, const TransferNote& note) override {
    if (from.device() != Device::cuda) {
      return inner_->all_to_all(from, to, note);
    }
    ScratchPool::Lease sent = staging_->take(from.bytes());
    const Tensor host(sent.data(), from.dtype(), from.shape());
    staging_->copy_to_host(from, host);
    return moved(to, {.in = all_of(to)}, {}, [&](const Tensor& arrived, const TransferWork& /*w*/) {
      Transfer transfer = inner_->all_to_all(host, arrived, note);
      return Transfer(std::make_unique<StagedState>(
          staging_, std::move(sent), std::move(transfer), std::nullopt));
    });
  }

  Transfer broadcast(const Tensor& data, int root, const TransferNote& note) override {
    const Ways ways = rank() == root ? Ways{.out = all_of(data)} : Ways{.in = all_of(data)};
    return moved(data, ways, {}, [&](const Tensor& host, const TransferWork& /*work*/) {
      return inner_->broadcast(host, root, note);
    });
  }

  Transfer barrier(const TransferNote& note) override { return inner_->barrier(note); }

  std::unique_ptr<Communicator> group(const std::string& axis,
                                      const std::vector<int>& members,
                                      Urgency urgency) override {
    return host_staged(inner_->group(axis, members, urgency), staging_);
  }

  [[nodiscard]] std::size_t bytes_sent() const override { return inner_->bytes_sent(); }

  void record_transfers(bool on) override { inner_->record_transfers(on); }

  [[nodiscard]] std::vector<TransferRecord> take_records() override {
    return inner_->take_records();
  }

  [[nodiscard]] double now() const override { return inner_->now(); }

  [[nodiscard]] const std::vector<int>& nodes() const override { return inner_->nodes(); }

  void fail(const std::string& reason) override { inner_->fail(reason); }

  [[nodiscard]] bool has_failed() const override { return inner_->has_failed(); }

 private:
  // Which elements a transfer reads of the device's memory, and which it writes.
  struct Ways {
    Slice out{};
    Slice in{};
  };

  static Slice all_of(const Tensor& data) { return {0, data.num_elements()}; }

  [[nodiscard]] Slice own_of(const Tensor& data) const {
    return slice_of(data.num_elements(), rank(), size());
  }

  // submit(a copy of the tensor on the host, what to do beside) makes the transfer.
  template <typename Submit>
  Transfer moved(const Tensor& data,
                 const Ways& ways,
                 const TransferWork& work,
                 const Submit& submit) {
    if (data.device() != Device::cuda || size() == 1 || data.bytes() == 0) {
      return submit(data, work);
    }
    ScratchPool::Lease lease = staging_->take(data.bytes());
    const Tensor host(lease.data(), data.dtype(), data.shape());
    TransferWork staged = work;
    const StagedState* before =
        work.follows == nullptr ? nullptr : dynamic_cast<const StagedState*>(work.follows->state());
    if (before != nullptr) {
      staged.follows = &before->transfer();
    }
    if (ways.out.count() > 0 && work.before) {
      staged.before = [first = work.before,
                       computed = staging_->computed(),
                       from = part_of(data, ways.out),
                       to = part_of(host, ways.out)] {
        computed->wait();
        first();
        cuda::copy_now(to.raw(), from.raw(), from.bytes());
      };
    } else if (ways.out.count() > 0) {
      staging_->copy_to_host(part_of(data, ways.out), part_of(host, ways.out));
    }
    std::optional<std::pair<Tensor, Tensor>> result;
    if (ways.in.count() > 0 &&
        work.worker != nullptr) {  // what follows it reads the device's memory
      staged.after =
          [last = work.after, from = part_of(host, ways.in), to = part_of(data, ways.in)] {
            cuda::copy_now(to.raw(), from.raw(), from.bytes());
            if (last) {
              last();
            }
          };
    } else if (ways.in.count() > 0) {
      result = {part_of(host, ways.in), part_of(data, ways.in)};
    }
    Transfer transfer = submit(host, staged);
    return Transfer(std::make_unique<StagedState>(
        staging_, std::move(lease), std::move(transfer), std::move(result)));
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<const HostStaging> staging_;
};

}  // namespace

std::unique_ptr<Communicator> host_staged(std::unique_ptr<Communicator> inner,
                                          std::shared_ptr<const HostStaging> staging) {
  if (inner == nullptr) {
    return inner;
  }
  return std::make_unique<HostStagedCommunicator>(std::move(inner), std::move(staging));
}

}  // namespace slackline
