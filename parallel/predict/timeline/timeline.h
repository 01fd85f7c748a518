#pragma once

#include <array>
#include <vector>

#include "parallel/plan/cost_model.h"
#include "parallel/schedule/ops.h"
#include "parallel/schedule/transfer_class.h"
#include "parallel/schedule/unit.h"

// When everything in a step happens under a cost model, found by simulating its events.
namespace slackline::schedule {

enum class NodeKind {
  op,        // of a rank's list; posts and waits take no time of their own
  transfer,  // across a boundary of the pipeline
  data_reduction,
  embedding_sync,
  parameter_gather,
  gradient_norm,  // of all ranks
  optimizer
};

// A once-a-step transfer is a chain of nodes: its codec encodes, links serve its exchanges, in two
// nodes where there are two or more of them, and its codec decodes. Without a codec the first and
// the last take no time.
enum class NodePart { whole, encode, further, decode };

// Why a node waits for another.
enum class EdgeKind {
  data,    // also program order
  encode,  // of a send's transfer: `lag` is the time to encode
  service  // a link, data axis or codec serves the other first: `lag` takes off what it needs no
           // more
};

// A node starts no earlier than the node `from` ends, plus `lag` (negative: before its end).
struct Edge {
  int from{};  // index of a node
  Seconds lag{};
  EdgeKind kind{};
};

struct TimelineNode {
  NodeKind kind{};
  NodePart part{};
  int rank{};  // the sender's for a transfer, the first rank for a sync of several
  int peer{};  // the receiver's for a transfer, else equal to rank
  Op op{};     // transfers: the send; buckets: of their chunk, with their number as micro_batch
  TransferClass members{};  // of transfers, and ops that encode or decode one
  Bytes bytes{};            // transfers only
  Seconds ready{};          // transfers: when the last peer had submitted
  Seconds start{};
  Seconds end{};
  std::vector<Edge> after{};  // data, program order and order of service

  [[nodiscard]] Seconds duration() const { return end - start; }
};

// Where a rank's step goes; the parts add up to the step. Exposed: waiting for a transfer after its
// last peer has submitted it; waiting before that is bubble.
struct RankTimes {
  Seconds compute{};
  Seconds bubble{};
  Seconds update{};  // gradient norm and optimizer
  std::array<Seconds, kSiteNames.size()> exposed{};

  [[nodiscard]] Seconds exposed_at(Site site) const { return exposed[static_cast<unsigned>(site)]; }
};

struct Timeline {
  std::vector<TimelineNode> nodes;  // first the ops of the ranks' lists, one list after another
  std::vector<int> order;           // node indices such that every edge points forward in it
  std::vector<RankTimes> ranks;
  Seconds step{};
};

// The semantics of ops.h, and:
//   - a transfer starts when it is submitted and (from eager_bytes on) its receive is posted;
//   links,
//     and ends that links share, serve in order of readiness
//   - a rank serves its data axis (gathers of parameters, buckets, embedding sync) one at a time,
//     each for its bytes; it arrives a latency after each of its exchanges
//   - a rank's codec works on one of these at a time, beside compute
//   - a step begins with the gathers of the parameters that the step before has updated
//   - the embedding sync follows the buckets of the first and the last stage's ranks
//   - the gradient norm waits for all ranks
// Deterministic: ties go to the node that was made first. REQUIRES: violations(schedule) is empty;
// costs.chunks.size() == schedule.num_stages().
[[nodiscard]] Timeline make_timeline(const Schedule& schedule, const CostModel& costs);

// Share of the step in which the ranks idle for want of work, mean over ranks.
[[nodiscard]] double bubble_share(const Timeline& timeline);

// Whether a node transfers, once a step or across a boundary: it then is of a class.
[[nodiscard]] bool is_transfer(NodeKind kind);

// Whether a node follows the ranks' lists at the end of a step: buckets, the embedding sync, the
// update. No op waits for it.
[[nodiscard]] bool is_late(NodeKind kind);

// Whether a node is of a codec that is not there: nothing to be shown.
[[nodiscard]] bool is_empty_part(const TimelineNode& node);

}  // namespace slackline::schedule
