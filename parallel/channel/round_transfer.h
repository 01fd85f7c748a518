#pragma once

#include "core/tensor/stream.h"

namespace slackline {

// An outer round on its way between workers, whatever it is made of. Used by the rank's thread.
class RoundTransfer {
 public:
  virtual ~RoundTransfer() = default;

  [[nodiscard]] virtual bool is_under_way() const = 0;

  // Whether the round under way has arrived. Does not block.
  [[nodiscard]] virtual bool done() const = 0;

  // Waits until it is done().
  virtual void wait() = 0;

  // Waits until what has arrived is whole, in the order of `stream`, and nothing works on it.
  virtual void finish(StreamView stream) = 0;
};

}  // namespace slackline
