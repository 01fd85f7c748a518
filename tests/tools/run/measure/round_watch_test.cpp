#include "tools/run/measure/round_watch.h"

#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

Wait transfer(std::size_t axis, double submitted, double finished) {
  Wait wait{.axis = axis};
  wait.record.submitted = submitted;
  wait.record.finished = finished;
  return wait;
}

}  // namespace

TEST_CASE("a round that nobody waited for has arrived with the last of its transfers") {
  constexpr std::size_t kData = 2;
  const RoundTravel seen{.sent = 10.0, .needed = 20.0, .arrived = 15.0};
  const auto corrected = [&](RoundTravel round, const std::vector<Wait>& transfers) {
    correct_arrival(round, transfers);
    return round.arrived;
  };
  const std::vector<Wait> own = {transfer(kOuterAxis, 9.9, 12.0), transfer(kOuterAxis, 9.9, 13.0)};
  CHECK(corrected(seen, own) == 13.0);
  // Not with those of another axis, and not with those of the round that the end sends itself.
  std::vector<Wait> more = own;
  more.push_back(transfer(kData, 14.0, 14.5));
  more.push_back(transfer(kOuterAxis, 20.5, 25.0));
  CHECK(corrected(seen, more) == 13.0);
  // Without records, or with those of other rounds alone, it stays.
  CHECK(corrected(seen, {}) == 15.0);
  CHECK(corrected(seen, {transfer(kOuterAxis, 8.0, 9.0), transfer(kOuterAxis, 20.5, 25.0)}) ==
        15.0);
  // Who waits knows when it went on.
  RoundTravel waited = seen;
  waited.waited = 1.0;
  CHECK(corrected(waited, own) == 15.0);
}

}  // namespace slackline
