#include "tools/run/measure/round_watch.h"

#include <algorithm>

namespace slackline {

void RoundWatch::settle() {
  loop_->look();  // what has arrived by now is not waited for
  const bool waits_for_start = loop_->sends_start_again();
  const double waits_from = clock_->now();
  loop_->settle();
  if (under_way_ && waits_for_start) {
    under_way_->waited += clock_->now() - waits_from;
  } else {
    note_wait(waits_from);
  }
}

void RoundWatch::exchange_anchor(std::int64_t step) {
  loop_->look();
  const double waits_from = clock_->now();
  loop_->exchange_anchor(step);
  note_wait(waits_from);
}

void RoundWatch::note_wait(double since) {
  if (under_way_ && !loop_->is_under_way()) {
    under_way_->arrived = loop_->sent_at() + loop_->round_seconds();
    under_way_->waited += std::max(0.0, under_way_->arrived - since);
  }
}

RoundEnd RoundWatch::end_round(std::int64_t step, const RoundFacts& own, bool last) {
  const double began = clock_->now();
  ended_ = {.end_began = began};
  settle();  // the end would wait for the same round
  if (under_way_) {
    under_way_->needed = began;
    ended_.arrived.push_back(*under_way_);
    under_way_.reset();
  }
  const double sent_before = loop_->sent_at();
  RoundEnd end = loop_->end_round(step, own, last);
  ended_.end_ended = clock_->now();
  if (loop_->sent_at() == sent_before) {  // the round is left out
    return end;
  }
  RoundTravel next{.step = step,
                   .fragment = loop_->fragment(),
                   .takes_part = loop_->takes_part(),
                   .sent = loop_->sent_at()};
  if (loop_->is_under_way()) {
    under_way_ = next;
    ended_.under_way = next;
  } else if (!loop_->has_fragments()) {
    next.needed = next.sent;
    next.waited = loop_->round_seconds();
    next.arrived = next.sent + next.waited;
    ended_.arrived.push_back(next);
  }
  return end;
}

void correct_arrival(RoundTravel& round, std::span<const Wait> transfers) {
  if (round.waited > 0.0) {
    return;
  }
  double last = 0.0;
  for (const Wait& wait : transfers) {
    // A run's last end also waits for a round that it sends itself.
    if (wait.axis == kOuterAxis && wait.record.finished <= round.arrived) {
      last = std::max(last, wait.record.finished);
    }
  }
  if (last > round.sent) {
    round.arrived = last;
  }
}

}  // namespace slackline
