#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "model/cost/part_flops.h"
#include "model/model_config.h"
#include "model/stage.h"

namespace slackline {

// What the tensor ranks of a stage exchange for one micro-batch in training, as a list: every
// transfer that the layers start through TensorSum, and those in which a stage puts the slices of a
// pipeline message together. All ranks of a tensor group start the same ones in the same order, and
// they end in that order. A test compares the list with what a stage does.
//
// Not in the list, because it happens once a step: under sequence parallelism the gradients of
// norms are summed over the tensor ranks.

// Recomputation belongs to backward_input. So do weight gradients that are made at once.
enum class PassKind { forward, backward_input, backward_weight };

struct TensorExchange {
  PassKind pass{};
  TransferRecord::Kind kind{};  // all_reduce, reduce_scatter or all_gather
  std::string_view what{};      // names the tensor in plans: "attention output"
  // These say how large the whole tensor is that the ranks sum or put together.
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::size_t element_bytes = 0;
  // The weight gradient that is computed while the exchange travels, and of how many tokens. Absent
  // if the pass waits for the exchange at once.
  std::optional<WeightProduct> beside{};
  std::int64_t beside_tokens = 0;
  // Whether it is posted while the exchange before it still travels: their latencies pass together.
  bool behind_previous = false;

  friend bool operator==(const TensorExchange&, const TensorExchange&) = default;

  // Returns the call of the tensor group that it is.
  [[nodiscard]] CollectiveCall call() const {
    return {.kind = kind,
            .elements = static_cast<std::size_t>(tokens * columns),
            .element_size = element_bytes};
  }
};

// The exchanges of all of options.chunk (the whole model where it is absent), in the order in which
// they happen; none for one tensor rank. Of the other `options` they read micro_batch, compute, the
// share but its rank, weight_gradients and the device.
// REQUIRES: weight gradients are not made later where blocks are recomputed.
[[nodiscard]] std::vector<TensorExchange> chunk_exchanges(const ModelConfig& config,
                                                          const Stage::Options& options);

}  // namespace slackline
