#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slackline {

class Bell;
struct Flight;

// Keeps apart the messages of one operation between one pair of ranks.
enum class Lane : std::uint8_t {
  first,    // a collective's first exchange
  second,   // its second; a gather's also where it is the only one
  direct,   // send and receive; numbered per pair of ranks
  setup,    // agreement on new groups; numbered per pair of ranks
  control,  // of the transport itself
};

// One message between two ranks of the world. A send meets the receive with the same pair of
// ranks, communicator, lane and sequence, the first the first where there are several; both know
// the size.
struct Message {
  enum class Way : std::uint8_t { send, receive };

  Way way = Way::send;
  Lane lane = Lane::first;
  int self = 0;
  int peer = 0;
  std::uint32_t communicator = 0;
  std::uint32_t sequence = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  double link_share = 1.0;   // of its bytes, which a link is taken to carry
  Flight* flight = nullptr;  // whose it is; transports only hand it back
  std::size_t piece = 0;

  [[nodiscard]] double carried_bytes() const { return link_share * static_cast<double>(bytes); }
};

// Who is told of finished messages, within progress() or post().
class MessageListener {
 public:
  virtual ~MessageListener() = default;
  virtual void message_done(const Message& message) = 0;
};

// Moves messages between ranks, without blocking once groups are open. It is made, opens groups and
// ends on the engine's thread; the rest is called from several threads, one after the other.
// Failures throw CommError.
class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Transport() = default;

  // Opens what the messages of a new group travel on. `members` are its ranks in the world. May
  // block until all of them have called, and nothing else moves meanwhile.
  // REQUIRES: all members have agreed on `id`, call at the same time and wait for nothing else.
  virtual void open_group(std::uint32_t id, const std::vector<int>& members) = 0;

  // REQUIRES: the message's communicator is 0, which is the world, or was opened.
  virtual void post(const Message& message) = 0;

  // Looks for finished messages; true when there was one.
  virtual bool progress() = 0;

  // Whether messages finish without a wake-up, so that somebody has to keep looking.
  [[nodiscard]] virtual bool needs_polling() const = 0;

  // Returns the bell that other processes ring when progress() may find something; null: none do.
  [[nodiscard]] virtual Bell* bell() { return nullptr; }

  // Whether the bell tells of all that is under way.
  [[nodiscard]] virtual bool bell_tells_all() const { return false; }

  // Rings for the engines of ranks to and from which messages are under way.
  virtual void call_peers() {}

  // When progress() has something to do at a known time.
  [[nodiscard]] virtual std::optional<Clock::time_point> next_due() const { return {}; }

  // Tells the other processes of a failure, as well as that can be done in a fraction of a second.
  virtual void announce_failure(const std::string& reason) = 0;

  // The orderly end, with nothing under way. Not called after a failure.
  virtual void close() = 0;

  // Ends all processes of the world; does not return where there are any but this one.
  virtual void abort(int code) = 0;
};

}  // namespace slackline
