#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/plan/step_waits.h"
#include "parallel/step/outer_loop.h"

namespace slackline {

// How one outer round, or one fragment, travelled as a rank saw it, in seconds of the world's
// clock.
struct RoundTravel {
  // Seconds from sending to arrival.
  [[nodiscard]] double seconds() const { return arrived - sent; }

  // Seconds that steps had to hide it; 0 where its own end waits for it.
  [[nodiscard]] double period_seconds() const { return needed - sent; }

  std::int64_t step = 0;   // with whose end it was sent
  int fragment = 0;        // 0 where rounds are of the whole model
  bool takes_part = true;  // this rank has a share of it
  double sent = 0.0;
  double needed = 0.0;   // when the end that uses it began
  double arrived = 0.0;  // without a wait: when it was first seen to have arrived
  double waited = 0.0;   // seconds that this rank waited for it, before a save too
};

// Lists the rounds of one end.
struct RoundTravels {
  // The one that the end was due to use first; behind it, at the run's last end, the one that was
  // sent there and waited for.
  std::vector<RoundTravel> arrived{};
  std::optional<RoundTravel> under_way{};  // sent with this end; lacks what is yet to come
  // All of the end: waiting for rounds and for other ranks, moving the anchor.
  double end_began = 0.0;
  double end_ended = 0.0;
};

// Ends the rounds of an OuterLoop, and notes when each was sent, needed and there, and how long the
// rank waited. Of the fragments that a run's last step sends all at once nothing is noted. Changes
// no result. Used by the rank's thread; every rank of the run calls alike.
class RoundWatch {
 public:
  // Loop and clock must outlive it.
  RoundWatch(OuterLoop& loop, const Communicator& clock) : loop_(&loop), clock_(&clock) {}

  // Does what OuterLoop::end_round() does.
  [[nodiscard]] RoundEnd end_round(std::int64_t step, const RoundFacts& own, bool last);

  // Does what OuterLoop::settle() does.
  void settle();

  // Does what OuterLoop::exchange_anchor() does.
  void exchange_anchor(std::int64_t step);

  // Returns what the end of this step has noted; nothing where none was made since the last call.
  [[nodiscard]] RoundTravels take() { return std::exchange(ended_, {}); }

 private:
  // Notes a wait since then, if the round has arrived in it.
  void note_wait(double since);

  OuterLoop* loop_;
  const Communicator* clock_;
  std::optional<RoundTravel> under_way_{};  // or arrived, and yet to be used
  RoundTravels ended_{};                    // of the last end
};

// Corrects the arrival of a round that nobody waited for, which the watch has seen up to a step
// late. `transfers` are the rank's of the step that used the round. Their communicator has noted
// when they ended; where it keeps no such records, the arrival stays.
void correct_arrival(RoundTravel& round, std::span<const Wait> transfers);

}  // namespace slackline
