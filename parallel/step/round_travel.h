#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace slackline {

// The travel of one outer round, or one fragment, as a rank saw it, in seconds of the world's
// clock.
struct RoundTravel {
  // Seconds from sending to arrival; 0 before that.
  [[nodiscard]] double seconds() const { return arrived == 0.0 ? 0.0 : arrived - sent; }

  // Seconds that steps had to hide it; 0 where its own end waits for it.
  [[nodiscard]] double period_seconds() const { return needed - sent; }

  std::int64_t step = 0;   // with whose end it was sent; 0: none was
  int fragment = 0;        // 0 where rounds are of the whole model
  bool takes_part = true;  // this rank has a share of it
  double sent = 0.0;
  double needed = 0.0;   // when the end that uses it began
  double arrived = 0.0;  // without a wait: when it was first seen to have arrived
  double waited = 0.0;   // seconds that this rank waited for it, before a save too
};

// Lists the rounds of one end. Of the fragments that a run's last step sends all at once nothing is
// noted.
struct RoundTravels {
  // The one that the end was due to use first; behind it, at the run's last end, the one that was
  // sent there and waited for.
  std::vector<RoundTravel> arrived{};
  std::optional<RoundTravel> under_way{};  // sent with this end; lacks what is yet to come
  // The end as a whole: waiting for rounds and for other ranks, moving the anchor.
  double end_began = 0.0;
  double end_ended = 0.0;
};

}  // namespace slackline
