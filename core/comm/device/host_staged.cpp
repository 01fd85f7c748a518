#include "core/comm/device/host_staged.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "core/comm/forwarding_communicator.h"
#include "core/comm/hierarchy.h"
#include "core/cuda/cuda_memory.h"
#include "core/error.h"

namespace slackline {

namespace {

// Long enough that a message's own cost is small beside it, short enough that three parts, one on
// its way to the host, one between hosts and one to the device, are soon under way.
constexpr std::size_t kPartBytes = std::size_t{4} << 20U;

// In elements; `bytes` is 0 for a single part.
std::vector<Slice> parts_of(const Slice& slice, DType dtype, std::size_t bytes) {
  const std::size_t longest = bytes == 0 ? slice.count() : bytes / size_of(dtype);
  std::vector<Slice> parts;
  for (std::size_t begin = slice.begin; begin < slice.end; begin += longest) {
    parts.push_back({begin, std::min(slice.end, begin + longest)});
  }
  return parts;
}

// A transfer of a copy on the host.
class StagedState final : public Transfer::State {
 public:
  // `copied` is when the device's memory has been read, where that is all there is to wait for.
  StagedState(std::shared_ptr<HostStaging> staging,
              HostStaging::Landing landing,
              std::shared_ptr<const CudaEvent> copied)
      : staging_(std::move(staging)), landing_(std::move(landing)), copied_(std::move(copied)) {}

  void wait() override {
    if (copied_ == nullptr) {
      staging_->land(std::move(landing_));
    } else {
      staging_->follow_event(*copied_);
      staging_->keep(std::move(landing_));
    }
  }

  [[nodiscard]] bool done() const override { return landing_.transfer.done(); }

  [[nodiscard]] const Transfer& transfer() const { return landing_.transfer; }

 private:
  std::shared_ptr<HostStaging> staging_;
  HostStaging::Landing landing_;
  std::shared_ptr<const CudaEvent> copied_;
};

class HostStagedCommunicator final : public ForwardingCommunicator {
 public:
  HostStagedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<HostStaging> staging)
      : ForwardingCommunicator(std::move(inner)), staging_(std::move(staging)) {}

  ~HostStagedCommunicator() override {
    try {
      staging_->finish();
    } catch (const Error&) {  // of a transfer: the rank is on its way out, and will say why
      staging_->forget();
    }
  }

  HostStagedCommunicator(const HostStagedCommunicator&) = delete;
  HostStagedCommunicator& operator=(const HostStagedCommunicator&) = delete;

  Transfer submit(Operation operation) override {
    staging_->look();
    const Tensor& data = operation.data;
    if (data.device() != Device::cuda || size() == 1 || data.bytes() == 0) {
      return real().submit(std::move(operation));
    }
    if (operation.kind != Kind::all_to_all) {
      return moved(std::move(operation));
    }
    SL_CHECK(data.raw() != operation.to.raw(), "an all-to-all in place");
    return operation.work.worker == nullptr ? exchanged(std::move(operation))
                                            : exchanged_beside(std::move(operation));
  }

  std::unique_ptr<Communicator> group(const std::string& axis,
                                      const std::vector<int>& members,
                                      Urgency urgency) override {
    return host_staged(real().group(axis, members, urgency), staging_);
  }

  [[nodiscard]] std::vector<TransferRecord> take_records() override {
    staging_->finish();
    return real().take_records();
  }

 private:
  // Which elements a transfer reads of the device's memory, and which it writes.
  struct Ways {
    Slice out{};
    Slice in{};
    bool in_parts = false;  // copies and messages go side by side
  };

  static Slice all_of(const Tensor& data) { return {0, data.num_elements()}; }

  [[nodiscard]] Slice own_of(const Tensor& data) const {
    return slice_of(data.num_elements(), rank(), size());
  }

  [[nodiscard]] Ways ways_of(const Operation& operation) const {
    const Slice all = all_of(operation.data);
    switch (operation.kind) {
      case Kind::send:
        return {.out = all, .in_parts = true};
      case Kind::receive:
        return {.in = all, .in_parts = true};
      case Kind::all_reduce:
        return {.out = all, .in = all};
      case Kind::reduce_scatter:
        return {.out = all, .in = own_of(operation.data)};
      case Kind::all_gather:
        return {.out = own_of(operation.data), .in = all};
      case Kind::broadcast:
        return rank() == operation.peer ? Ways{.out = all} : Ways{.in = all};
      case Kind::all_to_all:
      case Kind::barrier:
        break;
    }
    SL_CHECK(false,
             std::string("no tensor is both sent and received in ") + name_of(operation.kind));
  }

  [[nodiscard]] Tensor host_copy(const Tensor& data, HostStaging::Landing& landing) const {
    ScratchPool::Lease& lease = landing.memory.emplace_back(staging_->take(data.bytes()));
    return {lease.data(), data.dtype(), data.shape()};
  }

  Transfer moved(Operation operation) {
    const Tensor data = operation.data;
    const TransferWork work = std::move(operation.work);
    const Ways ways = ways_of(operation);
    HostStaging::Landing landing{.posted = staging_->computed()};
    const Tensor host = host_copy(data, landing);
    std::shared_ptr<const CudaEvent> copied;
    TransferWork staged = with_copies(data, host, ways, work, landing.posted);
    if (ways.in_parts && work.worker == nullptr) {
      staged.part_bytes = kPartBytes;
    }
    if (ways.out.count() > 0 && !work.before) {
      for (const Slice& part : parts_of(ways.out, data.dtype(), staged.part_bytes)) {
        copied = staging_->copy_out(part_of(data, part), part_of(host, part));
        landing.copied.push_back(copied);
        staged.start_parts.push_back(staging_->when(copied));
      }
      if (staged.part_bytes == 0) {
        staged.start_before = std::exchange(staged.start_parts, {}).front();
      }
    }
    if (ways.in.count() > 0 && !staged.after) {
      for (const Slice& part : parts_of(ways.in, data.dtype(), staged.part_bytes)) {
        landing.results.push_back(
            {part_of(host, part), part_of(data, part), landing.results.size()});
      }
    }
    if (ways.in.count() > 0 || work.before) {
      copied = nullptr;
      landing.gate = staging_->take_gate(std::max<std::size_t>(1, landing.results.size()));
      staged.ended = [gate = *landing.gate] { gate.open(); };
      if (landing.results.size() > 1) {
        staged.parts_done = [gate = *landing.gate](std::size_t count) { gate.open_first(count); };
      }
    }
    operation.data = host;
    operation.work = std::move(staged);
    landing.transfer = real().submit(std::move(operation));
    return Transfer(std::make_unique<StagedState>(staging_, std::move(landing), std::move(copied)));
  }

  // An all-to-all. The rank's own slice goes nowhere, so it may be taken before the copies of it
  // have been made.
  Transfer exchanged(Operation operation) {
    const Tensor from = operation.data;
    const Tensor to = operation.to;
    HostStaging::Landing landing{.posted = staging_->computed()};
    operation.data = host_copy(from, landing);
    operation.to = host_copy(to, landing);
    landing.gate = staging_->take_gate();
    landing.copied.push_back(staging_->copy_out(from, operation.data));
    operation.work = {.start_before = staging_->when(landing.copied.back()),
                      .ended = [gate = *landing.gate] { gate.open(); }};
    landing.results = {{operation.to, to}, {part_of(from, own_of(from)), part_of(to, own_of(to))}};
    landing.transfer = real().submit(std::move(operation));
    return Transfer(std::make_unique<StagedState>(staging_, std::move(landing), nullptr));
  }

  // An all-to-all of what work makes; the rank's own slice stays where it is.
  Transfer exchanged_beside(Operation operation) {
    const Tensor from = operation.data;
    const Tensor to = operation.to;
    const TransferWork work = std::move(operation.work);
    SL_CHECK(work.before != nullptr, "an all-to-all with work that does not make it");
    HostStaging::Landing landing{.posted = staging_->computed()};
    operation.data = host_copy(from, landing);
    operation.to = host_copy(to, landing);
    operation.work = with_copies(from, operation.data, {.out = all_of(from)}, work, landing.posted);
    const TransferWork taking =
        with_copies(to, operation.to, {.in = all_of(to)}, work, landing.posted);
    operation.work.start_after = taking.start_after;
    operation.work.after = taking.after;
    landing.gate = staging_->take_gate();
    operation.work.ended = [gate = *landing.gate] { gate.open(); };
    landing.transfer = real().submit(std::move(operation));
    return Transfer(std::make_unique<StagedState>(staging_, std::move(landing), nullptr));
  }

  // The same work, by a worker that finds and leaves data in the device's memory. It starts when
  // the computation has come as far as now, and waits for nothing then: so transfers on which the
  // computation waits are never behind others.
  [[nodiscard]] TransferWork with_copies(const Tensor& data,
                                         const Tensor& host,
                                         const Ways& ways,
                                         const TransferWork& work,
                                         std::shared_ptr<const CudaEvent> posted) const {
    TransferWork staged = work;
    const StagedState* before =
        work.follows == nullptr ? nullptr : dynamic_cast<const StagedState*>(work.follows->state());
    if (before != nullptr) {
      staged.follows = &before->transfer();
    }
    if (work.worker == nullptr) {
      return staged;
    }
    const TransferWork::Start computed = staging_->when(std::move(posted));
    if (ways.out.count() > 0 && work.before) {
      staged.start_before = computed;
      staged.before =
          [first = work.before, from = part_of(data, ways.out), to = part_of(host, ways.out)] {
            first();
            cuda::copy_now(to.raw(), from.raw(), from.bytes());
          };
    }
    if (ways.in.count() > 0) {  // what follows it reads the device's memory
      staged.start_after = computed;
      staged.after =
          [last = work.after, from = part_of(host, ways.in), to = part_of(data, ways.in)] {
            cuda::copy_now(to.raw(), from.raw(), from.bytes());
            if (last) {
              last();
            }
          };
    }
    return staged;
  }

  std::shared_ptr<HostStaging> staging_;
};

}  // namespace

std::unique_ptr<Communicator> host_staged(std::unique_ptr<Communicator> inner,
                                          std::shared_ptr<HostStaging> staging) {
  if (inner == nullptr) {
    return inner;
  }
  return std::make_unique<HostStagedCommunicator>(std::move(inner), std::move(staging));
}

}  // namespace slackline
