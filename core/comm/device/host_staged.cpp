#include "core/comm/device/host_staged.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "core/comm/forwarding_communicator.h"
#include "core/cuda/cuda_memory.h"
#include "core/error.h"

namespace slackline {

namespace {

// Long enough that a message's own cost is small beside it, short enough that three parts, one on
// its way to the host, one between hosts and one to the device, are soon under way.
constexpr std::size_t kPartBytes = std::size_t{4} << 20U;

// In elements; `bytes` is 0 for a single part.
std::vector<Slice> parts_of(const Tensor& data, std::size_t bytes) {
  const std::size_t elements = data.num_elements();
  const std::size_t longest = bytes == 0 ? elements : bytes / size_of(data.dtype());
  std::vector<Slice> parts;
  for (std::size_t begin = 0; begin < elements; begin += longest) {
    parts.push_back({begin, std::min(elements, begin + longest)});
  }
  return parts;
}

// A transfer of a copy on the host.
class StagedState final : public Transfer::State {
 public:
  StagedState(std::shared_ptr<HostStaging> staging, HostStaging::Landing landing)
      : staging_(std::move(staging)), landing_(std::move(landing)) {}

  // Without a gate there is nothing to wait for but that the device's memory has been read.
  void wait() override {
    if (landing_.gate) {
      staging_->land(std::move(landing_));
    } else {
      staging_->follow_event(*landing_.copied.back());
      staging_->keep(std::move(landing_));
    }
  }

  [[nodiscard]] bool done() const override { return landing_.transfer.done(); }

  [[nodiscard]] const Transfer& transfer() const { return landing_.transfer; }

 private:
  std::shared_ptr<HostStaging> staging_;
  HostStaging::Landing landing_;
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
    if (operation.kind == Kind::all_to_all) {
      SL_CHECK(data.raw() != operation.to.raw(), "an all-to-all in place");
      SL_CHECK(operation.work.worker == nullptr || operation.work.before != nullptr,
               "an all-to-all with work that does not make it");
    }
    return moved(std::move(operation));
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
  // Which elements of one tensor a transfer reads, and which it writes.
  struct Ways {
    Slice out{};
    Slice in{};
  };

  // The device's memory that a transfer reads and that it writes, and their copies on the host; no
  // elements where it does not.
  struct Ends {
    Tensor out;
    Tensor out_host;
    Tensor in;
    Tensor in_host;
  };

  [[nodiscard]] Slice own_of(const Tensor& data) const {
    return slice_of(data.num_elements(), rank(), size());
  }

  [[nodiscard]] Ways ways_of(const Operation& operation) const {
    const Slice all{0, operation.data.num_elements()};
    switch (operation.kind) {
      case Kind::send:
        return {.out = all};
      case Kind::receive:
        return {.in = all};
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

  // Gives the operation copies on the host in place of its tensors.
  Ends stage(Operation& operation, HostStaging::Landing& landing) const {
    const Tensor data = operation.data;
    operation.data = host_copy(data, landing);
    if (operation.kind == Kind::all_to_all) {
      const Tensor to = operation.to;
      operation.to = host_copy(to, landing);
      return {data, operation.data, to, operation.to};
    }
    const Ways ways = ways_of(operation);
    return {part_of(data, ways.out),
            part_of(operation.data, ways.out),
            part_of(data, ways.in),
            part_of(operation.data, ways.in)};
  }

  // Copies what a transfer reads to the host; each part of it goes when its copy has been made.
  void copy_out(const Ends& ends, TransferWork& staged, HostStaging::Landing& landing) {
    for (const Slice& part : parts_of(ends.out, staged.part_bytes)) {
      landing.copied.push_back(
          staging_->copy_out(part_of(ends.out, part), part_of(ends.out_host, part)));
      staged.start_parts.push_back(staging_->when(landing.copied.back()));
    }
    if (staged.part_bytes == 0) {
      staged.start_before = std::exchange(staged.start_parts, {}).front();
    }
  }

  Transfer moved(Operation operation) {
    const TransferWork work = std::move(operation.work);
    HostStaging::Landing landing{.posted = staging_->computed()};
    const Ends ends = stage(operation, landing);
    TransferWork staged = with_copies(ends, work, landing.posted);
    if ((operation.kind == Kind::send || operation.kind == Kind::receive) &&
        work.worker == nullptr) {
      staged.part_bytes = kPartBytes;  // copies and messages go side by side
    }
    if (ends.out.num_elements() > 0 && !work.before) {
      copy_out(ends, staged, landing);
    }
    if (ends.in.num_elements() > 0 && !staged.after) {
      for (const Slice& part : parts_of(ends.in, staged.part_bytes)) {
        landing.results.push_back(
            {part_of(ends.in_host, part), part_of(ends.in, part), landing.results.size()});
      }
    }
    if (ends.in.num_elements() > 0 || work.before) {
      landing.gate = staging_->take_gate(std::max<std::size_t>(1, landing.results.size()));
      staged.ended = [gate = *landing.gate] { gate.open(); };
      if (landing.results.size() > 1) {
        staged.parts_done = [gate = *landing.gate](std::size_t count) { gate.open_first(count); };
      }
    }
    if (operation.kind == Kind::all_to_all && work.worker == nullptr) {
      // The rank's own slice goes nowhere, so it may be taken before the copies of it have been
      // made: it is copied on the device, over what arrived in its place.
      const Slice own = own_of(ends.out);
      landing.results.push_back({part_of(ends.out, own), part_of(ends.in, own)});
    }
    operation.work = std::move(staged);
    landing.transfer = real().submit(std::move(operation));
    return Transfer(std::make_unique<StagedState>(staging_, std::move(landing)));
  }

  // The same work, by a worker that finds and leaves data in the device's memory. It starts when
  // the computation has come as far as now, and waits for nothing then: so transfers on which the
  // computation waits are never behind others.
  [[nodiscard]] TransferWork with_copies(const Ends& ends,
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
    if (ends.out.num_elements() > 0 && work.before) {
      staged.start_before = computed;
      staged.before = [first = work.before, from = ends.out, to = ends.out_host] {
        first();
        cuda::copy_now(to.raw(), from.raw(), from.bytes());
      };
    }
    if (ends.in.num_elements() > 0) {  // what follows it reads the device's memory
      staged.start_after = computed;
      staged.after = [last = work.after, from = ends.in_host, to = ends.in] {
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
