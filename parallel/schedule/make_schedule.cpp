#include "parallel/schedule/make_schedule.h"

#include <stdexcept>
#include <string>

#include "parallel/schedule/schedule_traits.h"
#include "parallel/schedule/transfer_passes.h"

namespace slackline::schedule {

namespace {

void require_positive(const char* name, int value) {
  if (value < 1) {
    throw std::invalid_argument(std::string("a schedule needs at least one ") + name + ": " +
                                std::to_string(value));
  }
}

void check_options(Kind kind, const ScheduleOptions& options) {
  require_positive("rank", options.num_ranks);
  require_positive("chunk", options.num_chunks);
  require_positive("micro-batch", options.num_micro_batches);
  if (kind == Kind::interleaved) {
    if (options.num_micro_batches % options.num_ranks != 0) {
      throw std::invalid_argument(
          "the interleaved schedule needs a multiple of the pipeline degree as its number of "
          "micro-batches: " +
          std::to_string(options.num_micro_batches) + " micro-batches on " +
          std::to_string(options.num_ranks) + " ranks");
    }
  } else if (options.num_chunks != 1) {
    throw std::invalid_argument("only the interleaved schedule has several chunks on a rank: " +
                                std::to_string(options.num_chunks));
  }
}

}  // namespace

Schedule make_schedule(Kind kind, const ScheduleOptions& options) {
  check_options(kind, options);
  Schedule schedule{.kind = kind,
                    .num_ranks = options.num_ranks,
                    .num_chunks = options.num_chunks,
                    .num_micro_batches = options.num_micro_batches};
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    schedule.ranks.push_back(traits_of(kind).compute_order(options, rank));
  }
  if (options.transfers == Transfers::blocking) {
    pair_exchanges(schedule);
  } else {
    post_receives_early(schedule);
  }
  return schedule;
}

}  // namespace slackline::schedule
