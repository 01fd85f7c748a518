#include "core/comm/device/nccl_communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "core/comm/device/nccl_check.h"
#include "core/comm/device/ordered_sum_cuda.h"
#include "core/comm/engine/collective_steps.h"
#include "core/comm/engine/hierarchical_steps.h"
#include "core/comm/hierarchy.h"
#include "core/comm/text_exchange.h"
#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_memory.h"
#include "core/error.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;

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
  // alone, in which both have them (collective_steps.h, hierarchical_steps.h). Messages of a step
  // go at once, those inside a node beside those between nodes.
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

  void broadcast(int root, void* data, std::size_t bytes) {
    SL_NCCL_CHECK(
        ncclBroadcast(data, data, bytes, ncclUint8, root, comm_, stream_.cuda().handle()));
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

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> staged,
                   std::shared_ptr<HostStaging> staging,
                   NcclTraffic traffic)
      : staged_(std::move(staged)), staging_(std::move(staging)) {
    traffic == NcclTraffic::collectives ? connect_all() : connect_neighbours();
  }

  [[nodiscard]] int rank() const override { return staged_->rank(); }

  [[nodiscard]] int size() const override { return staged_->size(); }

  [[nodiscard]] const std::string& axis() const override { return staged_->axis(); }

  Transfer send(const Tensor& data,
                int to,
                const TransferNote& note,
                const TransferWork& work) override {
    NcclLink* const link = is_own(data, work) ? link_to(to) : nullptr;
    if (link == nullptr) {
      return staged_->send(data, to, note, work);
    }
    const TransferRecord record{.kind = Kind::send, .peer = to, .note = note};
    return run(*link, record, sent_by(Kind::send, data, to), [&] {
      link->send(link == next_.get() ? 1 : 0, data.raw(), data.bytes());
    });
  }

  Transfer receive(const Tensor& data,
                   int from,
                   const TransferNote& note,
                   const TransferWork& work) override {
    NcclLink* const link = is_own(data, work) ? link_from(from) : nullptr;
    if (link == nullptr) {
      return staged_->receive(data, from, note, work);
    }
    const TransferRecord record{.kind = Kind::receive, .peer = from, .note = note};
    return run(*link, record, sent_by(Kind::receive, data, from), [&] {
      link->receive(link == previous_.get() ? 0 : 1, data.raw(), data.bytes());
    });
  }

  Transfer all_reduce(const Tensor& data,
                      const TransferNote& note,
                      SumOrder order,
                      const TransferWork& work) override {
    if (all_ == nullptr || !is_own(data, work)) {
      return staged_->all_reduce(data, note, order, work);
    }
    const Way way = hierarchy().way_of_sum(data.bytes(), size(), order);
    return run(Kind::all_reduce,
               note,
               way == Way::direct ? steps().all_reduce(data, order)
                                  : steps_of(way).all_reduce(data, order));
  }

  Transfer reduce_scatter(const Tensor& data,
                          const TransferNote& note,
                          SumOrder order,
                          const TransferWork& work) override {
    if (all_ == nullptr || !is_own(data, work)) {
      return staged_->reduce_scatter(data, note, order, work);
    }
    const Way way = hierarchy().way_of_sum(data.bytes(), size(), order);
    return run(Kind::reduce_scatter,
               note,
               way == Way::direct ? steps().reduce_scatter(data, order)
                                  : steps_of(way).reduce_scatter(data, order));
  }

  Transfer all_gather(const Tensor& data,
                      const TransferNote& note,
                      const TransferWork& work) override {
    if (all_ == nullptr || !is_own(data, work)) {
      return staged_->all_gather(data, note, work);
    }
    const Way way = hierarchy().way_of_gather(data.bytes(), size());
    return run(Kind::all_gather,
               note,
               way == Way::direct ? steps().all_gather(data) : steps_of(way).all_gather(data));
  }

  Transfer all_to_all(const Tensor& from,
                      const Tensor& to,
                      const TransferNote& note,
                      const TransferWork& work) override {
    if (all_ == nullptr || !is_own(from, work)) {
      return staged_->all_to_all(from, to, note, work);
    }
    const TransferRecord record{.kind = Kind::all_to_all, .note = note};
    return run(*all_, record, sent_by(Kind::all_to_all, from, -1), [&] {
      const std::size_t bytes = from.bytes() / static_cast<std::size_t>(size());
      SL_NCCL_CHECK(ncclGroupStart());
      for (int peer = 0; peer < size(); ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * bytes;
        all_->send(peer, static_cast<std::byte*>(from.raw()) + at, bytes);
        all_->receive(peer, static_cast<std::byte*>(to.raw()) + at, bytes);
      }
      SL_NCCL_CHECK(ncclGroupEnd());
    });
  }

  Transfer broadcast(const Tensor& data,
                     int root,
                     const TransferNote& note,
                     const TransferWork& work) override {
    if (all_ == nullptr || !is_own(data, work)) {
      return staged_->broadcast(data, root, note, work);
    }
    const TransferRecord record{.kind = Kind::broadcast, .note = note};
    return run(*all_, record, sent_by(Kind::broadcast, data, root), [&] {
      all_->broadcast(root, data.raw(), data.bytes());
    });
  }

  Transfer barrier(const TransferNote& note) override { return staged_->barrier(note); }

  std::unique_ptr<Communicator> group(const std::string& axis,
                                      const std::vector<int>& members,
                                      Urgency urgency) override {
    return staged_->group(axis, members, urgency);
  }

  [[nodiscard]] std::size_t bytes_sent() const override {
    return bytes_sent_ + staged_->bytes_sent();
  }

  [[nodiscard]] std::size_t bytes_sent_across() const override {
    return bytes_sent_across_ + staged_->bytes_sent_across();
  }

  void record_transfers(bool on) override {
    records_on_ = on;
    staged_->record_transfers(on);
  }

  // Records of both kinds are in the order of their submission.
  [[nodiscard]] std::vector<TransferRecord> take_records() override {
    std::vector<TransferRecord> all = staged_->take_records();
    for (const std::shared_ptr<Timed>& timed : std::exchange(records_, {})) {
      all.push_back(timed->taken());
    }
    std::ranges::stable_sort(all, {}, &TransferRecord::submitted);
    return all;
  }

  [[nodiscard]] double now() const override { return staged_->now(); }

  [[nodiscard]] const std::vector<int>& nodes() const override { return staged_->nodes(); }

  [[nodiscard]] const std::vector<int>& hosts() const override { return staged_->hosts(); }

  void set_links(const Cluster& links) override { staged_->set_links(links); }

  void set_hierarchy(const Hierarchy& hierarchy) override { staged_->set_hierarchy(hierarchy); }

  [[nodiscard]] const Hierarchy& hierarchy() const override { return staged_->hierarchy(); }

  void fail(const std::string& reason) override { staged_->fail(reason); }

  [[nodiscard]] bool has_failed() const override { return staged_->has_failed(); }

 private:
  // Link 0 of two neighbours' is the one that comes first in the ring.
  void connect_neighbours() {
    const std::vector<std::string> ids = exchange_texts(*staged_, new_id(), "NCCL's ids");
    const int before = (rank() + size() - 1) % size();
    const auto connect = [&](int first) {  // `first` and the rank after it
      const ncclUniqueId id = id_of(ids[static_cast<std::size_t>(first)]);
      const std::string name = "nccl " + axis() + " " + std::to_string(first);
      std::unique_ptr<NcclLink>& link = first == rank() ? next_ : previous_;
      link = std::make_unique<NcclLink>(name, id, first == rank() ? 0 : 1, 2, *staged_);
    };
    // In the order of their first ranks, so that all that have links have them in one order.
    connect(std::min(rank(), before));
    connect(std::max(rank(), before));
  }

  void connect_all() {
    const std::string id =
        broadcast_text(*staged_, 0, rank() == 0 ? new_id() : std::string(), "NCCL's id");
    all_ = std::make_unique<NcclLink>("nccl " + axis(), id_of(id), rank(), size(), *staged_);
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

  [[nodiscard]] bool is_own(const Tensor& data, const TransferWork& work = {}) const {
    return data.device() == Device::cuda && work.worker == nullptr && size() > 1 &&
           size() <= cuda::kMostRanksOfSum && data.bytes() > 0;
  }

  [[nodiscard]] CollectiveSteps steps() const { return {rank(), size(), scratch_}; }

  [[nodiscard]] HierarchicalSteps steps_of(Way way) const {
    return {rank(), size(), scratch_, hierarchy(), way};
  }

  // Scratch of the moves is given back when they are queued: the next ones that take it are queued
  // behind them.
  Transfer run(Kind kind, const TransferNote& note, const Moves& moves) {
    const Sent sent{moves.bytes_sent(),
                    moves.bytes_sent_across(rank(), hierarchy().ranks_in_group)};
    return run(*all_, {.kind = kind, .note = note}, sent, [&] { all_->run(moves); });
  }

  // Payload bytes of this rank, and those of them that leave its group.
  struct Sent {
    std::size_t all, across;
  };

  // Says what a transfer that goes directly sends.
  [[nodiscard]] Sent sent_by(Kind kind, const Tensor& data, int peer) const {
    const CollectiveCall call{.kind = kind,
                              .elements = data.num_elements(),
                              .element_size = size_of(data.dtype()),
                              .root = kind == Kind::broadcast ? peer : 0,
                              .hierarchy = hierarchy()};
    const std::size_t all = bytes_sent_by(call, rank(), size());
    if (kind == Kind::send || kind == Kind::receive) {
      const int ranks_in_group = hierarchy().ranks_in_group;
      return {all, peer / ranks_in_group != rank() / ranks_in_group ? all : 0};
    }
    return {all, bytes_sent_across_by(call, rank(), size())};
  }

  template <typename Queue>
  Transfer run(NcclLink& link, TransferRecord record, const Sent& sent, const Queue& queue) {
    link.require_alive();
    bytes_sent_ += sent.all;
    bytes_sent_across_ += sent.across;
    const std::shared_ptr<const CudaEvent> computed = staging_->computed();
    std::shared_ptr<Timed> timed;
    if (records_on_) {
      timed = records_.emplace_back(std::make_shared<Timed>());
      record.bytes_sent = sent.all;
      timed->record = record;
      Watch{staging_, staged_}(timed, Timed::begin, computed);
    }
    link.stream().cuda().follow(*computed);
    queue();
    return Transfer(
        std::make_unique<State>(Watch{staging_, staged_}, link.stream().cuda(), std::move(timed)));
  }

  std::shared_ptr<Communicator> staged_;
  std::shared_ptr<HostStaging> staging_;
  // Sums receive into it; leases share it.
  std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>(Backing::cuda);
  std::size_t bytes_sent_ = 0;
  std::size_t bytes_sent_across_ = 0;
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
