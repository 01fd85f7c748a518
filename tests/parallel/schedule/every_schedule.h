#pragma once

#include <vector>

#include "parallel/schedule/make_schedule.h"

namespace slackline::schedule::testing {

inline constexpr Kind kKinds[] = {Kind::gpipe, Kind::one_f_one_b, Kind::interleaved, Kind::zb_h1};

struct Limits {
  int ranks = 8;
  int micro_batches = 16;
  int chunks = 4;
};

// Calls visit(schedule) for every schedule within the limits, in both modes of transfer.
template <typename Visit>
void for_every_schedule(const Limits& limits, Visit visit) {
  for (const Kind kind : kKinds) {
    const int most_chunks = kind == Kind::interleaved ? limits.chunks : 1;
    for (int p = 1; p <= limits.ranks; ++p) {
      const int stride = kind == Kind::interleaved ? p : 1;
      for (int m = stride; m <= limits.micro_batches; m += stride) {
        for (int v = 1; v <= most_chunks; ++v) {
          for (const Transfers transfers : {Transfers::asynchronous, Transfers::blocking}) {
            visit(make_schedule(
                kind,
                {.num_ranks = p, .num_chunks = v, .num_micro_batches = m, .transfers = transfers}));
          }
        }
      }
    }
  }
}

}  // namespace slackline::schedule::testing
