#include "parallel/channel/channel_state.h"

#include <utility>

#include <fmt/format.h>

namespace slackline {

ChannelState own_array(std::string name, const Tensor& data) {
  const Region whole = whole_region(data.shape());
  return {.name = std::move(name),
          .data = data,
          .logical = data.shape(),
          .region = whole,
          .place = {.shape = data.shape(), .region = whole}};
}

void place_by_rank(ChannelState& state, int rank, int size) {
  const Shape& shape = state.data.shape();
  state.logical = Shape{size, shape[0], shape[1]};
  state.region = {.start = {rank, 0, 0}, .shape = Shape{1, shape[0], shape[1]}};
  state.place = {.shape = state.region.shape, .region = whole_region(state.region.shape)};
}

std::string boundary_label(const std::string& place, int number) {
  return number == 1 ? place : fmt::format("{}+{}", place, number);
}

}  // namespace slackline
