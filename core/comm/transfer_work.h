#pragma once

#include <functional>
#include <memory>

#include "core/comm/transfer.h"
#include "core/worker.h"

namespace slackline {

// Work that belongs to a transfer and runs beside its submitter: what makes the data that is sent,
// and what takes the data that arrives. A job returns when its work is done: on the CUDA device it
// synchronizes the stream it used. A job that throws fails the transfer, and with it all.
// After a wait that threw, jobs may still be under way: stop the worker before what they use goes.
struct TransferWork {
  std::shared_ptr<Worker> worker{};  // of the rank; shared with transfers under way
  std::function<void()> before{};    // the transfer begins when it has returned
  std::function<void()> beside{};    // follows `before`; wait() does not wait for it
  std::function<void()> after{};     // when all has arrived; wait() waits for it
  // Of the same rank: this transfer begins, `before` included, when that one has ended. Looked at
  // in the call alone.
  const Transfer* follows = nullptr;
};

}  // namespace slackline
