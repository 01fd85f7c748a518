#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "core/comm/engine/sum_window.h"

namespace slackline {

struct SumBytes {
  std::size_t tensor = 0;
  std::size_t received = 0;  // into scratch
};

// Follows the blocks that a rank's sums in the background take of its ScratchPool, submitted one
// after the other, where each ends as late as its group's window and end() let it.
class SumScratch {
 public:
  using Sum = std::size_t;

  explicit SumScratch(std::size_t longest_message) : longest_message_(longest_message) {}

  // Ends those of the group that its window wants ended before.
  Sum begin(int group, const SumBytes& sum);

  // Somebody waits for it. Does nothing where it has ended.
  void end(Sum sum);

  // The blocks that all of them needed.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Begun {
    int group = 0;
    SumWindow::Ticket ticket = 0;
    std::size_t block = 0;
    bool ended = false;
  };

  struct Group {
    SumWindow window;
    std::deque<Sum> begun{};  // and those of them that have ended behind the oldest that has not
  };

  [[nodiscard]] std::size_t take(std::size_t received);

  std::size_t longest_message_;
  std::map<int, Group> groups_{};
  std::vector<Begun> sums_{};
  std::multiset<std::size_t> free_{};
  std::size_t bytes_ = 0;
};

// Returns the bytes of the blocks that the sums of one group take.
[[nodiscard]] std::size_t scratch_bytes_of_sums(const std::vector<SumBytes>& sums,
                                                std::size_t longest_message);

}  // namespace slackline
