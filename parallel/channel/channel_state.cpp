#include "parallel/channel/channel_state.h"

#include <fmt/format.h>

namespace slackline {

std::string boundary_label(const std::string& place, int number) {
  return number == 1 ? place : fmt::format("{}+{}", place, number);
}

}  // namespace slackline
