#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/comm/links/cluster.h"
#include "core/comm/transport/transport.h"

namespace slackline {

// Sends that give way: from one rank to another at most two of them are under way, or as many bytes
// as keep the link busy, those of the oldest operation first. Against an older operation those of a
// younger one count until they should have arrived, for their receiver may not have begun it
// (SumWindow), and where links are not known not at all. A rank begins none while a message that
// the step waits for is on its link, for links share their speed evenly among what they carry. All
// this holds for what moves: a send that takes much longer waits for its receiver, and counts no
// more. Within a turn.
//
// A link is busy while bytes_per_second x latency_seconds bytes are on their way. So that, and two
// messages more, is the window of a pair of ranks, or of all sends of a rank where they share an
// adapter. Over links that nobody knows it is the bytes of two of the longest messages. A message
// that others give way to finds at most a window ahead of it: it comes one latency and the time of
// two messages later than over an idle link; or two windows, one of an older operation among them,
// over links that nobody knows.
class BackgroundSends {
 public:
  using Clock = Transport::Clock;

  // One would leave the link idle between a message's end and the next one's start.
  static constexpr int kAtOnce = 2;
  // What a send is given before it counts as one that waits.
  static constexpr std::chrono::seconds kPatience{1};
  static constexpr double kSlowLink = 1e6;  // bytes a second, and the time of its bytes at this

  // `longest`: bytes of the longest message. No windows but two messages a pair are known.
  explicit BackgroundSends(std::size_t longest = 0) : longest_(longest) {}

  // Links of the world from now on. `nodes`: of every rank.
  void set_links(const Cluster& links, const std::vector<int>& nodes);

  // `operation` numbers operations in order of submission.
  void add(const Message& message, std::uint64_t operation);

  // One that may go, of each rank the oldest first; it counts as under way until done(). Empty:
  // none for now.
  [[nodiscard]] std::optional<Message> next(Clock::time_point now);

  // When one that next() has held back may go, though nothing has ended; nothing where that is not
  // known.
  [[nodiscard]] std::optional<Clock::time_point> next_due() const;

  void done(const Message& message);

  // Around a message that the others give way to.
  void begin_urgent(const Message& message, Clock::time_point now);
  void end_urgent(const Message& message);

  void clear();

 private:
  using Key = std::pair<std::uint64_t, std::size_t>;  // operation, piece
  using Ends = std::pair<int, int>;                   // ranks, from and to

  struct UnderWay {
    Message message{};
    std::uint64_t operation = 0;
    Clock::time_point arrives{};  // by the link, if it is known
    Clock::time_point counts_until{};
  };

  // Holds what goes from one rank to another.
  struct Line {
    std::map<Key, Message> waiting{};
    std::vector<UnderWay> under_way{};
  };

  // Holds all that leaves one rank.
  struct Sender {
    std::map<int, Line> lines{};  // by receiver
    std::size_t num_waiting = 0;  // in all of them
    std::vector<UnderWay> urgent{};
    std::map<int, Clock::time_point> busy_until{};  // by server
    // Until then nothing may go, unless something is added or ends: what turns, which are many,
    // need not look for again. Empty: not known.
    std::optional<Clock::time_point> nothing_until{};
  };

  // Bytes under way from a server that count against an operation, as last added up.
  struct Beside {
    int server = 0;
    std::uint64_t operation = 0;
    std::size_t bytes = 0;
  };

  [[nodiscard]] static Clock::time_point counts_until(const Message& message,
                                                      Clock::time_point begin);
  // Whether it counts against a message of the operation.
  [[nodiscard]] static bool counts(const UnderWay& sent,
                                   std::uint64_t operation,
                                   Clock::time_point now);
  [[nodiscard]] static bool is_held(const Sender& sender, Clock::time_point now);
  // Whether the next message from `rank` to `receiver` may join those under way.
  [[nodiscard]] bool fits(int rank,
                          int receiver,
                          const Sender& sender,
                          std::optional<Beside>& beside,
                          Clock::time_point now) const;
  // The line whose next message goes first of those that may go; null: none may.
  [[nodiscard]] Line* line_to_go(int rank, Sender& sender, Clock::time_point now) const;
  // When one that waits now may go, though nothing has ended.
  [[nodiscard]] static Clock::time_point next_change(const Sender& sender, Clock::time_point now);
  [[nodiscard]] Cluster::Scope scope_of(const Ends& ends) const;
  [[nodiscard]] const Cluster::Link* link_of(const Ends& ends) const;
  // Returns what serves a rank's messages to a receiver one after the other: the receiver's own
  // link, or an adapter that all share.
  [[nodiscard]] int server_of(const Ends& ends) const;
  // Bytes under way from the same server that count against the operation.
  [[nodiscard]] std::size_t bytes_beside(const Ends& ends,
                                         const Sender& sender,
                                         std::uint64_t operation,
                                         Clock::time_point now) const;
  // Until when a message that begins now keeps its link busy, behind those before it. Nothing where
  // the link is not known.
  std::optional<Clock::time_point> serve(const Message& message, Clock::time_point now);

  std::size_t longest_;
  std::optional<Cluster> links_{};
  std::vector<int> nodes_{};
  std::map<int, Sender> senders_{};  // by rank
};

}  // namespace slackline
