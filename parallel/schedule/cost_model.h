#pragma once

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
};

// Part of a once-a-step transfer, and the op it runs beside. For a reduction `at` is the fraction
// of the chunk's last backward pass (or weight part) after which its gradients are complete; for
// a parameter gather the fraction of the chunk's first forward pass before which it must be there.
struct Bucket {
  double at{};
  Seconds seconds{};
};

// One virtual stage.
struct ChunkCosts {
  Seconds forward{};
  Seconds backward_input{};
  Seconds backward_weight{};
  Bytes forward_bytes{};   // its output, to the next virtual stage
  Bytes backward_bytes{};  // its input gradient, to the one before
  std::vector<Bucket> data_reduction{};
  std::vector<Bucket> parameter_gather{};
};

// A transfer that differs from its chunk's: compressed, or tried out.
struct TransferCost {
  Bytes bytes{};
  Seconds encode{};  // between the send and the link, beside compute
  Seconds decode{};  // between the link and the use, beside compute
};

struct CostModel {
  std::vector<ChunkCosts> chunks{};             // p v, by virtual stage
  Link link{};                                  // between any two ranks that `links` does not name
  std::map<std::pair<int, int>, Link> links{};  // directed: {from, to}
  std::map<TransferId, TransferCost> transfers{};  // in place of the chunk's bytes
  Bytes eager_limit{};       // a transfer this small starts before its receive is posted
  Seconds embedding_sync{};  // of the tied table, between the first and last stage's ranks
  Seconds gradient_norm{};   // once all ranks' gradients are there
  Seconds optimizer{};       // then, on each rank
};

// Costs that are the same for each of `num_stages` virtual stages, without transfers.
[[nodiscard]] CostModel uniform_costs(int num_stages, const ChunkCosts& costs);

// How long it computes; nothing for transfers and waits.
[[nodiscard]] Seconds op_seconds(const CostModel& costs, const Op& op);

[[nodiscard]] const Link& link_between(const CostModel& costs, int from, int to);

// How long the link is busy with it.
[[nodiscard]] Seconds service_seconds(const Link& link, Bytes bytes);

[[nodiscard]] TransferCost transfer_cost(const CostModel& costs, const TransferId& id);

// Gives every transfer of a class the same cost.
void set_class_cost(CostModel& costs,
                    const Schedule& schedule,
                    const TransferClass& changed,
                    const TransferCost& cost);

}  // namespace slackline::schedule
