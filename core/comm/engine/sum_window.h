#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace slackline {

// Says when a group's sums in the background begin, so that what they receive into stays small
// beside the tensors: in order of submission, each once those before it, counted from the oldest
// that has not ended, are fewer than two or have less than a limit of bytes. That depends on sizes,
// which all ranks of the group see alike, and on what has ended here. So ranks do not wait for each
// other in a circle: of those whose oldest sum is the oldest of all each has begun what the others
// have begun, and whoever is ahead of them has sent all that this sum needs.
class SumWindow {
 public:
  using Ticket = std::uint64_t;  // of one sum

  // One travels to where it is added while the other one travels back.
  static constexpr std::uint64_t kAtOnce = 2;

  // Returns the limit where messages are cut to `longest_message` bytes, 64 MiB for 512 KiB, which
  // a link of 10 Gb/s carries in 54 ms. 0, messages that are not cut: there is none.
  static std::size_t limit_of(std::size_t longest_message);

  explicit SumWindow(std::size_t limit) : limit_(limit) {}

  // The next one, of a tensor of so many bytes.
  Ticket add(std::size_t bytes);

  [[nodiscard]] bool may_begin(Ticket sum) const { return sum < end_of_begun_; }

  // REQUIRES: it might begin.
  void end(Ticket sum);

  [[nodiscard]] bool empty() const { return sums_.empty(); }

 private:
  struct Sum {
    std::size_t bytes = 0;
    bool ended = false;
  };

  void begin_more();

  std::size_t limit_;
  std::deque<Sum> sums_{};       // from the oldest that has not ended
  Ticket oldest_ = 0;            // of the first of them
  Ticket end_of_begun_ = 0;      // one past the last that may begin
  std::size_t begun_bytes_ = 0;  // from the oldest to there
};

}  // namespace slackline
