#include "tests/parallel/schedule/validator.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "tests/parallel/schedule/every_schedule.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

Schedule small() {
  return make_schedule(Kind::one_f_one_b, {.num_ranks = 3, .num_micro_batches = 4});
}

std::ptrdiff_t find(const std::vector<Op>& ops, const Op& op) {
  return std::find(ops.begin(), ops.end(), op) - ops.begin();
}

void exchange(std::vector<Op>& ops, const Op& a, const Op& b) {
  std::swap(ops.at(static_cast<std::size_t>(find(ops, a))),
            ops.at(static_cast<std::size_t>(find(ops, b))));
}

std::string first_violation(const Schedule& schedule) {
  const std::vector<std::string> all = violations(schedule);
  return all.empty() ? "none" : all.front();
}

}  // namespace

TEST_CASE("every schedule of up to 8 ranks, 16 micro-batches and 4 chunks is sound") {
  int checked = 0;
  for_every_schedule({}, [&](const Schedule& schedule) {
    INFO("kind " << static_cast<int>(schedule.kind) << " transfers "
                 << static_cast<int>(schedule.transfers) << " p " << schedule.num_ranks << " v "
                 << schedule.num_chunks << " m " << schedule.num_micro_batches);
    CHECK(first_violation(schedule) == "none");
    ++checked;
  });
  CHECK(checked > 1000);
}

TEST_CASE("the validator finds a dropped op, whichever it is") {
  const Schedule sound = small();
  for (std::size_t rank = 0; rank < sound.ranks.size(); ++rank) {
    for (std::size_t i = 0; i < sound.ranks[rank].size(); ++i) {
      Schedule schedule = sound;
      schedule.ranks[rank].erase(schedule.ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
      CHECK_FALSE(violations(schedule).empty());
    }
  }
}

TEST_CASE("the validator finds a duplicated op, whichever it is") {
  const Schedule sound = small();
  for (std::size_t rank = 0; rank < sound.ranks.size(); ++rank) {
    for (std::size_t i = 0; i < sound.ranks[rank].size(); ++i) {
      Schedule schedule = sound;
      schedule.ranks[rank].push_back(schedule.ranks[rank][i]);
      CHECK_FALSE(violations(schedule).empty());
    }
  }
}

TEST_CASE("the validator names ops on a wrong rank and beyond the micro-batches") {
  Schedule schedule = small();
  schedule.ranks[0][0].chunk = 1;
  CHECK(first_violation(schedule) == "F0 of rank 0 belongs to rank 1");
  schedule = small();
  schedule.ranks[0][0].micro_batch = 4;
  CHECK(first_violation(schedule) ==
        "F4 of rank 0 is of a chunk or micro-batch that does not exist");
}

TEST_CASE("the validator finds uses before receives and sends before their data") {
  Schedule schedule = small();
  exchange(schedule.ranks[1], {OpKind::receive_forward, 1, 0}, {OpKind::forward, 1, 0});
  CHECK(first_violation(schedule) == "rF0 of rank 1 stands after F0 of rank 1");
  schedule = small();
  exchange(schedule.ranks[1], {OpKind::send_backward, 1, 2}, {OpKind::backward, 1, 2});
  CHECK(first_violation(schedule) == "B2 of rank 1 stands after sB2 of rank 1");
}

TEST_CASE("the validator finds backward passes out of order") {
  Schedule schedule = small();
  exchange(schedule.ranks[2], {OpKind::backward, 2, 0}, {OpKind::backward, 2, 1});
  exchange(schedule.ranks[2], {OpKind::send_backward, 2, 0}, {OpKind::send_backward, 2, 1});
  exchange(schedule.ranks[2], {OpKind::forward, 2, 0}, {OpKind::forward, 2, 1});
  exchange(schedule.ranks[2], {OpKind::receive_forward, 2, 0}, {OpKind::receive_forward, 2, 1});
  CHECK(first_violation(schedule) == "B1 of rank 2 runs before micro-batch 0 of its chunk");
}

TEST_CASE("the validator finds sends in another order than their receives") {
  Schedule schedule = small();
  exchange(schedule.ranks[0], {OpKind::forward, 0, 0}, {OpKind::forward, 0, 1});
  exchange(schedule.ranks[0], {OpKind::send_forward, 0, 0}, {OpKind::send_forward, 0, 1});
  CHECK(first_violation(schedule) ==
        "sF1 of rank 0 is message 0 to rank 1, which receives another one there");
}

TEST_CASE("the validator finds a deadlock of two waits") {
  // Each rank waits for its receive before it sends what the other one waits for.
  Schedule schedule =
      make_schedule(Kind::one_f_one_b,
                    {.num_ranks = 2, .num_micro_batches = 2, .transfers = Transfers::blocking});
  REQUIRE(violations(schedule).empty());
  const Op wait{.kind = OpKind::wait};
  std::vector<Op>& first = schedule.ranks[0];
  const auto send = first.begin() + find(first, {OpKind::send_forward, 0, 1});
  REQUIRE(send[1] == Op{OpKind::receive_backward, 0, 0});
  std::swap(send[0], send[1]);
  first.insert(send + 1, wait);
  std::vector<Op>& second = schedule.ranks[1];
  const auto reply = second.begin() + find(second, {OpKind::send_backward, 1, 0});
  REQUIRE(reply[1] == Op{OpKind::receive_forward, 1, 1});
  std::swap(reply[0], reply[1]);
  second.insert(reply + 1, wait);
  CHECK(first_violation(schedule).rfind("deadlock: ", 0) == 0);
}

TEST_CASE("the validator finds more micro-batches in flight than 1f1b allows") {
  Schedule schedule = make_schedule(Kind::gpipe, {.num_ranks = 3, .num_micro_batches = 4});
  REQUIRE(violations(schedule).empty());
  schedule.kind = Kind::one_f_one_b;
  CHECK(first_violation(schedule) == "rank 0 holds 4 micro-batches at once, not 3 at most");
}

}  // namespace slackline::schedule::testing
