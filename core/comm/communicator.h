#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/transfer.h"
#include "core/comm/transfer_work.h"
#include "core/tensor/tensor.h"

namespace slackline {

struct Cluster;
struct Hierarchy;

// Orders a sum over ranks, per element, in fp32 (f64 tensors: in double): runs of consecutive ranks
// are added first, then the runs' sums in order.
struct SumOrder {
  // Sizes of nested runs: runs[0] ranks make a run, runs[1] such runs the next larger one; 1: none.
  // {3, 1} adds ((x0 + x1) + x2) + ((x3 + x4) + x5) + ..., {2, 2} adds
  // ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) + ...
  std::array<int, 2> runs{1, 1};

  static const SumOrder ranks;  // ((x0 + x1) + x2) + x3
  static const SumOrder pairs;  // (x0 + x1) + (x2 + x3)

  // Whether the largest runs cut `size` ranks without a rest, as every sum requires.
  [[nodiscard]] bool fits(int size) const { return size % (runs[0] * runs[1]) == 0; }

  friend bool operator==(const SumOrder&, const SumOrder&) = default;
};

inline const SumOrder SumOrder::ranks{};
inline const SumOrder SumOrder::pairs{.runs = {2, 1}};

// Whether a group's messages go at once, or a few at a time and its oldest operation first, so that
// those of other groups, which a rank waits for sooner, need not stand behind them on a link.
enum class Urgency { now, background };

// Slice r of n elements over `size` ranks: [begin, end), balanced for any n.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t count() const { return end - begin; }

  friend bool operator==(const Slice&, const Slice&) = default;
};

// The first n % size slices have one element more.
[[nodiscard]] Slice slice_of(std::size_t n, int rank, int size);
// The same of the elements of a range.
[[nodiscard]] Slice slice_of(const Slice& range, int rank, int size);

// Those elements of a tensor, as a row.
[[nodiscard]] Tensor part_of(const Tensor& tensor, const Slice& slice);

// What a transfer is for, for messages about failures and for traces. `what` is a literal.
struct TransferNote {
  const char* what = "";
  int stage = -1;        // virtual pipeline stage, -1: none
  int micro_batch = -1;  // -1: none
  // A message that is cut for a rehearsal stands for one of so many bytes, by which algorithms go.
  // 0: it stands for itself.
  std::size_t whole_bytes = 0;
  // How much longer than others it may be waited for, where ranks come to it on their own time.
  double patience_seconds = 0.0;
};

// One finished transfer, in seconds of the synchronized clock (Communicator::now).
struct TransferRecord {
  enum class Kind {
    send,
    receive,
    all_reduce,
    reduce_scatter,
    all_gather,
    all_to_all,
    broadcast,
    barrier,
  };

  Kind kind = Kind::send;
  int peer = -1;  // of send and receive, in the communicator
  TransferNote note{};
  std::size_t bytes_sent = 0;  // payload this rank sent
  double submitted = 0.0;      // of data that a device still had to compute: when it had
  double wait_begin = 0.0;     // when its rank began to wait; 0: it had finished by then
  double finished = 0.0;
  double wait_end = 0.0;  // when its rank went on; 0: as above
};

[[nodiscard]] const char* name_of(TransferRecord::Kind kind);

// One call of a communicator, for those that change some of them.
struct Operation {
  TransferRecord::Kind kind = TransferRecord::Kind::barrier;
  Tensor data{};     // of an all-to-all: what is sent
  Tensor to{};       // of an all-to-all: where slices arrive
  int peer = -1;     // of a send or receive: the other rank; of a broadcast: its root
  SumOrder order{};  // of a sum
  TransferNote note{};
  TransferWork work{};
};

// A group of ranks that exchange tensors. Calls return at once; data moves while the caller
// computes. All members submit the same collectives in the same order; sends and receives between
// two ranks match in order. One thread per rank submits and waits. Messages are contiguous tensors
// of any dtype; sums take f32, bf16 (summed in fp32, rounded once) and f64. Where a call takes
// work, its tensors are made and taken by that; work needs a group of two or more.
class Communicator {
 public:
  using Kind = TransferRecord::Kind;

  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const std::string& axis() const = 0;  // "tensor", "data", ...: who counts

  // Begins any of the calls below.
  [[nodiscard]] virtual Transfer submit(Operation operation) = 0;

  [[nodiscard]] Transfer send(const Tensor& data,
                              int to,
                              const TransferNote& note,
                              const TransferWork& work = {}) {
    return submit({.kind = Kind::send, .data = data, .peer = to, .note = note, .work = work});
  }

  [[nodiscard]] Transfer receive(const Tensor& data,
                                 int from,
                                 const TransferNote& note,
                                 const TransferWork& work = {}) {
    return submit({.kind = Kind::receive, .data = data, .peer = from, .note = note, .work = work});
  }

  // In place: every rank ends with the sum. REQUIRES: order.fits(size()).
  [[nodiscard]] Transfer all_reduce(const Tensor& data,
                                    const TransferNote& note,
                                    SumOrder order = SumOrder::ranks,
                                    const TransferWork& work = {}) {
    return submit(
        {.kind = Kind::all_reduce, .data = data, .order = order, .note = note, .work = work});
  }

  // In place: this rank's slice of `data` ends as the sum; the rest is undefined. The slice is
  // slice_of(elements). REQUIRES: order.fits(size()).
  [[nodiscard]] Transfer reduce_scatter(const Tensor& data,
                                        const TransferNote& note,
                                        SumOrder order = SumOrder::ranks,
                                        const TransferWork& work = {}) {
    return submit(
        {.kind = Kind::reduce_scatter, .data = data, .order = order, .note = note, .work = work});
  }

  // In place: every rank brings its slice of `data`, as above, and ends with all of it.
  [[nodiscard]] Transfer all_gather(const Tensor& data,
                                    const TransferNote& note,
                                    const TransferWork& work = {}) {
    return submit({.kind = Kind::all_gather, .data = data, .note = note, .work = work});
  }

  // Slice r of `from` goes to rank r, which puts slices in rank order. REQUIRES: elements divide
  // by size().
  [[nodiscard]] Transfer all_to_all(const Tensor& from,
                                    const Tensor& to,
                                    const TransferNote& note,
                                    const TransferWork& work = {}) {
    return submit({.kind = Kind::all_to_all, .data = from, .to = to, .note = note, .work = work});
  }

  [[nodiscard]] Transfer broadcast(const Tensor& data, int root, const TransferNote& note) {
    return submit({.kind = Kind::broadcast, .data = data, .peer = root, .note = note});
  }

  [[nodiscard]] Transfer barrier(const TransferNote& note) {
    return submit({.kind = Kind::barrier, .note = note});
  }

  // A sub-group under its own name. `members` are ranks of this communicator, in the order the new
  // ranks count; every member calls with the same list, ranks that are in none do not call.
  [[nodiscard]] virtual std::unique_ptr<Communicator> group(const std::string& axis,
                                                            const std::vector<int>& members,
                                                            Urgency urgency = Urgency::now) = 0;

  // Payload bytes this rank sent since the start, per communicator.
  [[nodiscard]] virtual std::size_t bytes_sent() const = 0;

  // Those of them that went to ranks of other groups, as hierarchy() had them when they were sent.
  [[nodiscard]] virtual std::size_t bytes_sent_across() const = 0;

  // Transfers that were waited for since the last call, in order of submission: members that run
  // the same program have the same list. Kept only when switched on.
  virtual void record_transfers(bool on) = 0;
  [[nodiscard]] virtual std::vector<TransferRecord> take_records() = 0;

  // Seconds of a clock that all ranks agree on: to some microseconds when the world is made, and
  // later to what the clocks of its hosts have drifted apart since.
  [[nodiscard]] virtual double now() const = 0;

  // Node of every rank of this communicator, numbered from 0 in rank order.
  [[nodiscard]] virtual const std::vector<int>& nodes() const = 0;

  // The same of the hosts that they are really on, which differ where links are emulated.
  [[nodiscard]] virtual const std::vector<int>& hosts() const = 0;

  // Says what the links of a world that emulates none are like, as probed: how many bytes of
  // background messages keep one busy follows from that. All ranks call alike.
  virtual void set_links(const Cluster& links) = 0;

  // Says how sums and gathers from now on are to go through groups of these ranks. Groups made of
  // this one have none. All members call alike, between the same calls.
  // REQUIRES: hierarchy.fits(size()).
  virtual void set_hierarchy(const Hierarchy& hierarchy) = 0;

  // At first all ranks are one by one (Hierarchy::is_flat).
  [[nodiscard]] virtual const Hierarchy& hierarchy() const = 0;

  // Tells all ranks of the world that this one cannot go on: their waits and later transfers throw
  // CommError with `reason`. The first failure counts.
  virtual void fail(const std::string& reason) = 0;

  // Whether any rank has, as far as this one knows. From any thread.
  [[nodiscard]] virtual bool has_failed() const = 0;
};

}  // namespace slackline
