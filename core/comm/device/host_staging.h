#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/comm/engine/scratch_pool.h"
#include "core/comm/transfer.h"
#include "core/comm/transfer_work.h"
#include "core/cuda/event_watch.h"
#include "core/tensor/stream.h"

namespace slackline {

// What the communicators of a rank need to move tensors of a CUDA device through the host: memory
// there, the stream on which the rank computes, once there is one, and a way for that stream to
// wait for transfers while the rank's thread goes on. Shared by the rank's groups; one thread per
// rank calls, but for open().
class HostStaging {
 public:
  // A word that the stream waits for and that open() changes, from any thread: a door for each
  // part of a transfer, one behind the other.
  struct Gate {
    std::uint32_t* word = nullptr;
    std::uint32_t value = 0;  // when all doors are open
    std::uint32_t doors = 1;

    // When the first `count` doors are open.
    [[nodiscard]] std::uint32_t value_of(std::size_t count) const {
      return value - doors + static_cast<std::uint32_t>(count);
    }

    void open_first(std::size_t count) const;

    void open() const { open_first(doors); }
  };

  struct Copy {
    Tensor from;
    Tensor to;
    std::size_t door = 0;  // behind which
  };

  // A transfer of copies on the host, and what stays until it has landed.
  struct Landing {
    std::vector<ScratchPool::Lease> memory{};
    std::optional<Gate> gate{};
    std::shared_ptr<const CudaEvent> posted{};  // from when on memory of the device may be written
    std::vector<std::shared_ptr<const CudaEvent>> copied{};  // to the host; events end with this
    std::vector<Copy> results{};  // to the device, when the transfer has ended
    std::shared_ptr<const CudaEvent> landed{};
    Transfer transfer{};  // ends before its memory
  };

  // Who waits for a transfer: the stream, so that the rank's thread goes on, or the thread. CUDA
  // may hold up a whole process where memory is allocated or freed, so the stream must not be left
  // waiting for one whose other end, or whose decoding, may do that: the stream is for processes
  // with one rank, in times in which their memory stays as it is.
  enum class Waits { stream, thread };

  // Transfers that are submitted from now on follow what the stream has been given by then, and
  // what it is given after a wait follows the transfer.
  void follow(StreamView compute);

  // The thread, unless told.
  void set_waits(Waits waits) { waits_ = waits; }

  [[nodiscard]] Waits waits() const { return waits_; }

  // What the rank has computed by the time of the call.
  [[nodiscard]] std::shared_ptr<const CudaEvent> computed() const;

  // What the rank computes from now on follows the event.
  void follow_event(const CudaEvent& event) const;

  // Starts a job when the event has come; nothing else waits for it.
  [[nodiscard]] TransferWork::Start when(std::shared_ptr<const CudaEvent> event);

  // Pinned, so that the device copies it without the processor's help.
  // Where there is none yet, waits until no stream waits for a transfer.
  [[nodiscard]] ScratchPool::Lease take(std::size_t bytes);

  [[nodiscard]] Gate take_gate(std::size_t doors = 1);

  // Beside the computation. Returns when the copy will have been made.
  [[nodiscard]] std::shared_ptr<const CudaEvent> copy_out(const Tensor& from, const Tensor& to);

  // What the rank computes from now on follows the transfer and its results; they are copied beside
  // the computation. Throws CommError where it has failed already. Blocks where more than kMostKept
  // have not landed, so that a thread that runs ahead of its device takes no memory without end.
  void land(Landing landing);

  // For a transfer whose memory on the device nobody waits for: keeps it until it has ended.
  void keep(Landing landing);

  // Throws what a transfer failed of that was waited for since; drops those that are done.
  void look();

  // Blocks until all are done. Throws as look().
  void finish();

  // Work that waits for the stream is dropped: for the end of a run that has failed.
  void forget() { watch_.forget(); }

 private:
  static constexpr std::size_t kMostKept = 16;
  static constexpr std::size_t kGatesInBlock = 1024;

  void drop_first();
  [[nodiscard]] CudaStream& stream() const;

  std::optional<StreamView> compute_{};
  Waits waits_ = Waits::thread;
  std::unique_ptr<CudaStream> departures_{};  // copies to the host
  std::unique_ptr<CudaStream> arrivals_{};    // and from it, in the order of waits
  std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>(Backing::pinned);
  std::vector<Buffer> gate_blocks_{};  // of words
  std::vector<Gate> free_gates_{};
  std::deque<Landing> landings_{};  // in the order of waits
  EventWatch watch_{};
};

}  // namespace slackline
