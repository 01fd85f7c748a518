#include "core/host_name.h"

#include <array>
#include <unistd.h>

namespace slackline {

std::string host_name() {
  constexpr std::size_t kLongest = 256;
  std::array<char, kLongest> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "localhost";
}

}  // namespace slackline
