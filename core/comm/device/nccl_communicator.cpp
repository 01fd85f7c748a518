#include "core/comm/device/nccl_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

#include "core/comm/device/ordered_sum_cuda.h"
#include "core/comm/engine/collective_moves.h"
#include "core/comm/forwarding_communicator.h"
#include "core/comm/hierarchy.h"
#include "core/comm/text_exchange.h"
#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_memory.h"
#include "core/error.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;

// Throws DeviceError that names the call where NCCL says that it failed. What is still under way
// has not.
void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess && result != ncclInProgress) {
    throw DeviceError(std::string(call) + " failed: " + ncclGetErrorString(result));
  }
}

#define SL_NCCL_CHECK(call) check_nccl((call), #call)

// One of NCCL's communicators with the stream that its work is queued on. A thread watches it:
// where NCCL tells of an error, or a rank of the world has failed, it is aborted, so that kernels
// that wait for others end.
class NcclLink {
 public:
  // All `size` ranks make it, with the id that one of them got. `group` outlives it.
  NcclLink(const std::string& name, const ncclUniqueId& id, int rank, int size, Communicator& group)
      : stream_({.name = name, .device = Device::cuda}) {
    SL_NCCL_CHECK(ncclCommInitRank(&comm_, size, id, rank));
    watch_ = std::thread([this, &group, device = cuda::device_of_thread()] {
      cuda::adopt_device(device);
      watch(group);
    });
  }

  ~NcclLink() {
    ending_ = true;
    watch_.join();
    if (!aborted_) {
      ncclCommDestroy(comm_);
    }
  }

  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  [[nodiscard]] StreamView stream() { return stream_; }

  void send(int peer, const void* from, std::size_t bytes) {
    SL_NCCL_CHECK(ncclSend(from, bytes, ncclUint8, peer, comm_, stream_.cuda().handle()));
  }

  void receive(int peer, void* to, std::size_t bytes) {
    SL_NCCL_CHECK(ncclRecv(to, bytes, ncclUint8, peer, comm_, stream_.cuda().handle()));
  }

  // Queues what the moves say, step by step. NCCL tells messages of two ranks apart by their order
  // alone, in which both have them (collective_moves.h). Messages of a step go at once, those
  // inside a node beside those between nodes.
  void run(const Moves& moves) {
    for (const Step& step : moves.steps) {
      SL_NCCL_CHECK(ncclGroupStart());
      for (const Piece& piece : step.pieces) {
        piece.way == Message::Way::send ? send(piece.peer, piece.data, piece.bytes)
                                        : receive(piece.peer, piece.data, piece.bytes);
      }
      SL_NCCL_CHECK(ncclGroupEnd());
      for (const OrderedSum& sum : step.sums) {
        cuda::ordered_sum(stream_, sum);
      }
    }
  }

  // Slice r of `from` goes to rank r of `size`.
  void exchange(const Tensor& from, const Tensor& to, int size) {
    const std::size_t bytes = from.bytes() / static_cast<std::size_t>(size);
    SL_NCCL_CHECK(ncclGroupStart());
    for (int peer = 0; peer < size; ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * bytes;
      send(peer, static_cast<std::byte*>(from.raw()) + at, bytes);
      receive(peer, static_cast<std::byte*>(to.raw()) + at, bytes);
    }
    SL_NCCL_CHECK(ncclGroupEnd());
  }

  void require_alive() const {
    if (aborted_) {
      throw CommError("NCCL was aborted, because a rank failed");
    }
  }

 private:
  void watch(Communicator& group) {
    constexpr std::chrono::milliseconds kPause(50);
    while (!ending_) {
      ncclResult_t state = ncclSuccess;
      ncclCommGetAsyncError(comm_, &state);
      const bool broken = state != ncclSuccess && state != ncclInProgress;
      if (broken) {
        // Before kernels end without data: no step is agreed on and nothing is saved from now on.
        group.fail(std::string("NCCL: ") + ncclGetErrorString(state));
      }
      if (broken || group.has_failed()) {
        aborted_ = true;
        ncclCommAbort(comm_);
        return;
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  Stream stream_;
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> ending_{false};
  std::atomic<bool> aborted_{false};
  std::thread watch_;
};

// Made by one rank for all of a link.
std::string new_id() {
  ncclUniqueId id{};
  SL_NCCL_CHECK(ncclGetUniqueId(&id));
  return {std::begin(id.internal), std::end(id.internal)};
}

ncclUniqueId id_of(const std::string& text) {
  ncclUniqueId id{};
  SL_CHECK_EQ(text.size(), sizeof(id.internal));
  std::copy(text.begin(), text.end(), std::begin(id.internal));
  return id;
}

class NcclCommunicator final : public ForwardingCommunicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> staged,
                   std::shared_ptr<HostStaging> staging,
                   NcclTraffic traffic)
      : ForwardingCommunicator(std::move(staged)), staging_(std::move(staging)) {
    traffic == NcclTraffic::collectives ? connect_all() : connect_neighbours();
  }

  Transfer submit(Operation operation) override {
    NcclLink* const link = link_of(operation);
    if (link == nullptr) {
      return real().submit(std::move(operation));
    }
    const Tensor& data = operation.data;
    if (operation.kind == Kind::send) {
      return run(*link, operation, sent_to(operation.peer, data), [&] {
        link->send(link == next_.get() ? 1 : 0, data.raw(), data.bytes());
      });
    }
    if (operation.kind == Kind::receive) {
      return run(*link, operation, {}, [&] {
        link->receive(link == previous_.get() ? 0 : 1, data.raw(), data.bytes());
      });
    }
    // Scratch of the moves is given back when they are queued: the next ones that take it are
    // queued behind them.
    const Moves moves = moves_of(operation, rank(), size(), scratch_, hierarchy());
    return run(*link, operation, sent_by(moves), [&] {
      operation.kind == Kind::all_to_all ? link->exchange(data, operation.to, size())
                                         : link->run(moves);
    });
  }

  [[nodiscard]] std::size_t bytes_sent() const override { return sent_.all + real().bytes_sent(); }

  [[nodiscard]] std::size_t bytes_sent_across() const override {
    return sent_.across + real().bytes_sent_across();
  }

  void record_transfers(bool on) override {
    records_on_ = on;
    real().record_transfers(on);
  }

  // Records of both kinds are in the order of their submission.
  [[nodiscard]] std::vector<TransferRecord> take_records() override {
    std::vector<TransferRecord> all = real().take_records();
    for (const std::shared_ptr<Timed>& timed : std::exchange(records_, {})) {
      if (timed->waited) {
        all.push_back(timed->taken());
      } else {
        records_.push_back(timed);
      }
    }
    std::ranges::stable_sort(all, {}, &TransferRecord::submitted);
    return all;
  }

 private:
  // Link 0 of two neighbours' is the one that comes first in the ring.
  void connect_neighbours() {
    const std::vector<std::string> ids = exchange_texts(real(), new_id(), "NCCL's ids");
    const int before = (rank() + size() - 1) % size();
    const auto connect = [&](int first) {  // `first` and the rank after it
      const ncclUniqueId id = id_of(ids[static_cast<std::size_t>(first)]);
      const std::string name = "nccl " + axis() + " " + std::to_string(first);
      std::unique_ptr<NcclLink>& link = first == rank() ? next_ : previous_;
      link = std::make_unique<NcclLink>(name, id, first == rank() ? 0 : 1, 2, real());
    };
    // In the order of their first ranks, so that all that have links have them in one order.
    connect(std::min(rank(), before));
    connect(std::max(rank(), before));
  }

  void connect_all() {
    const std::string id =
        broadcast_text(real(), 0, rank() == 0 ? new_id() : std::string(), "NCCL's id");
    all_ = std::make_unique<NcclLink>("nccl " + axis(), id_of(id), rank(), size(), real());
  }

  // Each of two ranks has the other both behind and before it: a message goes from one to the next.
  [[nodiscard]] NcclLink* link_to(int peer) const {
    return peer == (rank() + 1) % size()            ? next_.get()
           : peer == (rank() + size() - 1) % size() ? previous_.get()
                                                    : nullptr;
  }

  [[nodiscard]] NcclLink* link_from(int peer) const {
    return peer == (rank() + size() - 1) % size() ? previous_.get()
           : peer == (rank() + 1) % size()        ? next_.get()
                                                  : nullptr;
  }

  // A transfer's record, written as streams come to points of it: no thread waits for NCCL.
  struct Timed {
    enum Point { begin, wait_begin, end, kNumPoints };

    TransferRecord record{};
    std::array<std::atomic<double>, kNumPoints> seconds{};  // of the world's clock; 0: not watched
    std::atomic<int> pending = 0;                           // points that are being watched
    bool waited = false;

    // What was watched has been passed, or is about to be.
    [[nodiscard]] TransferRecord taken() const {
      while (pending > 0) {
        std::this_thread::yield();
      }
      TransferRecord all = record;
      all.submitted = seconds[begin];
      all.finished = std::max(seconds[begin].load(), seconds[end].load());
      if (seconds[wait_begin] > 0.0 && seconds[wait_begin] < all.finished) {
        all.wait_begin = seconds[wait_begin];
        all.wait_end = all.finished;
      }
      return all;
    }
  };

  // Shared with handles of transfers, which may outlive the communicator.
  struct Watch {
    std::shared_ptr<HostStaging> staging;
    std::shared_ptr<const Communicator> clock;

    void operator()(const std::shared_ptr<Timed>& timed,
                    Timed::Point point,
                    std::shared_ptr<const CudaEvent> event) const {
      ++timed->pending;
      staging->when(std::move(event))([timed, point, clock = clock] {
        timed->seconds[point] = clock->now();
        --timed->pending;
      });
    }
  };

  // Ends for the compute stream when the link's has come this far.
  class State final : public Transfer::State {
   public:
    State(Watch watch, const CudaStream& stream, std::shared_ptr<Timed> timed)
        : watch_(std::move(watch)), timed_(std::move(timed)) {
      end_->record(stream);
    }

    void wait() override {
      if (timed_ != nullptr) {
        timed_->waited = true;
        watch_(timed_, Timed::wait_begin, watch_.staging->computed());
        watch_(timed_, Timed::end, end_);
      }
      watch_.staging->follow_event(*end_);
    }

    [[nodiscard]] bool done() const override { return end_->is_done(); }

   private:
    Watch watch_;
    std::shared_ptr<Timed> timed_;  // null: nobody asks
    std::shared_ptr<CudaEvent> end_ = std::make_shared<CudaEvent>();
  };

  // Null: it goes through the host.
  [[nodiscard]] NcclLink* link_of(const Operation& operation) const {
    const Tensor& data = operation.data;
    if (data.device() != Device::cuda || operation.work.worker != nullptr || data.bytes() == 0 ||
        size() > cuda::kMostRanksOfSum) {
      return nullptr;
    }
    switch (operation.kind) {
      case Kind::send:
        return link_to(operation.peer);
      case Kind::receive:
        return link_from(operation.peer);
      case Kind::broadcast:  // of texts
      case Kind::barrier:
        return nullptr;
      default:
        return all_.get();
    }
  }

  // Payload bytes of this rank, and those of them that leave its group.
  struct Sent {
    std::size_t all = 0;
    std::size_t across = 0;
  };

  [[nodiscard]] Sent sent_to(int peer, const Tensor& data) const {
    const int ranks_in_group = hierarchy().ranks_in_group;
    return {data.bytes(), peer / ranks_in_group != rank() / ranks_in_group ? data.bytes() : 0};
  }

  [[nodiscard]] Sent sent_by(const Moves& moves) const {
    return {moves.bytes_sent(), moves.bytes_sent_across(rank(), hierarchy().ranks_in_group)};
  }

  template <typename Queue>
  Transfer run(NcclLink& link, const Operation& operation, const Sent& sent, const Queue& queue) {
    link.require_alive();
    sent_.all += sent.all;
    sent_.across += sent.across;
    const std::shared_ptr<const CudaEvent> computed = staging_->computed();
    const Watch watch{staging_, owned()};
    std::shared_ptr<Timed> timed;
    if (records_on_) {
      timed = records_.emplace_back(std::make_shared<Timed>());
      timed->record = {.kind = operation.kind,
                       .peer = operation.peer,
                       .note = operation.note,
                       .bytes_sent = sent.all};
      watch(timed, Timed::begin, computed);
    }
    link.stream().cuda().follow(*computed);
    queue();
    return Transfer(std::make_unique<State>(watch, link.stream().cuda(), std::move(timed)));
  }

  std::shared_ptr<HostStaging> staging_;
  // Sums receive into it; leases share it.
  std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>(Backing::cuda);
  Sent sent_{};
  bool records_on_ = false;
  std::vector<std::shared_ptr<Timed>> records_;
  std::unique_ptr<NcclLink> all_;       // of collectives
  std::unique_ptr<NcclLink> next_;      // to the next rank of the ring
  std::unique_ptr<NcclLink> previous_;  // from the one before
};

}  // namespace

std::string nccl_version() {
  int version = 0;
  SL_NCCL_CHECK(ncclGetVersion(&version));
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

std::unique_ptr<Communicator> nccl(std::unique_ptr<Communicator> staged,
                                   std::shared_ptr<HostStaging> staging,
                                   NcclTraffic traffic) {
  if (staged->size() == 1) {
    return staged;
  }
  return std::make_unique<NcclCommunicator>(std::move(staged), std::move(staging), traffic);
}

}  // namespace slackline
