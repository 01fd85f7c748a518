#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/comm/transfer.h"
#include "core/threads/worker.h"

namespace slackline {

// Work that belongs to a transfer and runs beside its submitter: what makes the data that is sent,
// and what takes the data that arrives. A job returns when its work is done: on the CUDA device it
// synchronizes the stream it used. A job that throws fails the transfer, and with it all.
// After a wait that threw, jobs may still be under way: stop the worker before what they use goes.
struct TransferWork {
  using Job = std::function<void()>;
  using Start = std::function<void(Job)>;  // runs its job, on any thread, when the time has come

  std::shared_ptr<Worker> worker{};  // of the rank; shared with transfers under way
  Job before{};                      // the transfer begins when it has returned
  Job beside{};                      // follows `before`; wait() does not wait for it
  Job after{};                       // when all has arrived; wait() waits for it
  // Hand `before` and `after` to the worker; empty: at once. The first may stand without `before`:
  // the transfer begins then.
  Start start_before{};
  Start start_after{};
  // A send or receive may go in parts of so many bytes, at both ends alike; 0: in one.
  std::size_t part_bytes = 0;
  std::vector<Start> start_parts{};  // of a send: when each of them can go
  // A receive tells it how many of the first parts have come; not to block or throw.
  std::function<void(std::size_t)> parts_done{};
  Job ended{};  // told at the end, also that of a transfer that failed; not to block or throw
  // This transfer begins, `before` included, when that one, of the same rank, has ended. Looked at
  // in the call alone.
  const Transfer* follows = nullptr;
};

}  // namespace slackline
