#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/checkpoint/region.h"
#include "core/tensor/tensor.h"

namespace slackline {

// A piece of what channels carry from step to step on one rank, for checkpoints: residuals, and
// what codecs learned.
struct ChannelState {
  std::string name;    // residual/<site>/<tensor, or layers before the boundary>[.right_factor]
  Tensor data{};       // f32
  Shape logical{};     // of the tensor it is a part of
  Region region{};     // that part
  LocalPlace place{};  // of the part in `data`
  std::optional<std::int64_t> worker{};  // where it differs from data rank to data rank
  int num_workers = 1;                   // how many there are
  bool saved = true;                     // by this rank: others may have the same
  bool sums = false;  // what all workers hold adds up to what is owed (residuals of gradients)
};

// This rank on the axes by which state differs.
struct StateRanks {
  int tensor = 0;
  int tensor_size = 1;
  int data = 0;
  int data_size = 1;
};

// Returns the state of that name that is an array of its own, all of which `data` is.
[[nodiscard]] ChannelState own_array(std::string name, const Tensor& data);

// Says that `state` belongs to one of `size` tensor ranks alone: it is that rank's slice of an
// array with a leading dimension of ranks.
void place_by_rank(ChannelState& state, int rank, int size);

// Names the state of a boundary's codecs behind residual/. `place` is the site and how many layers
// stand before the boundary, so that state stays where it belongs when stages are cut anew. Phases
// that have codecs of their own number them in the order of the schedule: "pipeline_forward/3",
// then "pipeline_forward/3+2".
[[nodiscard]] std::string boundary_label(const std::string& place, int number);

}  // namespace slackline
