#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "parallel/schedule/transfer_class.h"
#include "parallel/schedule/unit.h"

namespace slackline::schedule {

// What everything in a step takes. All fields default to nothing, so a model says what it knows.

enum class Duplex { full, half };

// Messages over a link are served one at a time, each for bytes / bytes_per_second, and arrive
// `latency` after their service; the link serves the next one meanwhile.
struct Link {
  Seconds latency{};
  double bytes_per_second{};  // 0: no limit
  Duplex duplex{};            // half: both directions share one service
  // Two ends that may be other links' as well, as a node's adapter is, by any numbers: each serves
  // one message at a time, whichever link it goes over, and `duplex` says nothing. None: negative.
  std::array<int, 2> ends{-1, -1};
  double eager_bytes{};  // a transfer of as many or more starts once its receive is posted
};

// Exchanges between all ranks of a group that a once-a-step transfer makes, one after the other:
// the link serves each for its part of the bytes, and what it carried arrives `latency` later.
// Meanwhile the link serves others.
struct Exchanges {
  Seconds latency{};
  int plain = 1;  // of the transfer without a codec: a gather or a scatter has 1, a sum 1 or 2
  int sum = 1;    // of a sum over the same ranks, which codecs that add take instead
};

// Part of a once-a-step transfer, and the op it runs beside. For a reduction `at` is the fraction
// of the chunk's last backward pass (or weight part) after which its gradients are complete; for
// a parameter gather the fraction of the chunk's first forward pass before which it must be there.
struct Bucket {
  double at{};
  Seconds
      before{};  // of a reduction: sums over other links that come first, which no codec changes
  Seconds seconds{};  // that all its exchanges keep the link busy
  Exchanges exchanges{};
  // Other chunks' buckets may go over the same adapter of a node, which any number names: it serves
  // one at a time. None: negative.
  int end = -1;
  bool table = false;  // a tied table's gradients, a class of their own
  bool tail = false;   // in Phase::tail, where a table's are always
};

// Exchanges of a pass over tensor ranks, which it makes one after the other and waits for.
struct TensorSums {
  int count = 0;
  Seconds each{};
  Seconds hidden{};  // of each, by what the pass computes meanwhile
  Bytes bytes{};     // of each, over the ranks

  [[nodiscard]] Seconds seconds() const { return static_cast<double>(count) * (each - hidden); }
};

// One virtual stage.
struct ChunkCosts {
  Seconds forward{};  // computing alone
  Seconds backward_input{};
  Seconds backward_weight{};
  std::vector<TensorSums> forward_sums{};  // of each of these passes
  std::vector<TensorSums> backward_sums{};
  std::vector<TensorSums> weight_sums{};
  Bytes forward_bytes{};   // its output, to the next virtual stage
  Bytes backward_bytes{};  // its input gradient, to the one before
  std::vector<Bucket> data_reduction{};
  std::vector<Bucket> parameter_gather{};
};

// What follows each other in a once-a-step transfer.
struct Rounds {
  int plain = 0;    // the exchanges that it makes without a codec
  int sums = 0;     // sums over the ranks
  int gathers = 0;  // gathers or other single exchanges

  friend bool operator==(const Rounds&, const Rounds&) = default;
};

// What a codec makes of a class of transfers. In a pipeline's class it counts for each message; in
// a once-a-step class for all its transfers together, evenly.
struct ClassCost {
  double share = 1.0;  // of the bytes, which still travel
  Rounds rounds{.plain = 1};
  Seconds encode{};
  Seconds decode{};
};

struct CostModel {
  std::vector<ChunkCosts> chunks{};             // p v, by virtual stage
  Link link{};                                  // between any two ranks that `links` does not name
  std::map<std::pair<int, int>, Link> links{};  // directed: {from, to}
  std::map<TransferId, Bytes> transfers{};      // in place of the chunk's
  std::map<TransferClass, ClassCost> compressed{};
  // Encoding and decoding messages keeps a rank from computing: no core is free for it. Else both
  // go on beside compute.
  bool codecs_take_compute = false;
  Seconds embedding_sync{};  // of the tied table, between the first and last stage's ranks
  Exchanges embedding_exchanges{};
  Seconds gradient_norm{};  // once all ranks' gradients are there
  Seconds optimizer{};      // then, on each rank
};

// How long it computes and waits for tensor ranks; nothing for transfers and waits.
[[nodiscard]] Seconds op_seconds(const CostModel& costs, const Op& op);

// Its exchanges over tensor ranks.
[[nodiscard]] std::vector<TensorSums> tensor_sums(const CostModel& costs, const Op& op);

[[nodiscard]] const Link& link_between(const CostModel& costs, int from, int to);

// Returns how long the link is busy with so many bytes.
[[nodiscard]] Seconds service_seconds(const Link& link, double bytes);

// Returns the bytes of a message without a codec.
[[nodiscard]] Bytes transfer_bytes(const CostModel& costs, const TransferId& id);

// Returns the class's cost; where it has no codec, the cost of a plain class.
[[nodiscard]] const ClassCost& cost_of_class(const CostModel& costs, const TransferClass& members);

}  // namespace slackline::schedule
