#include <string>

#include "core/comm/world.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

void run_on_ranks(const std::string& claim) {
  for (const CommCheck& check : comm_checks()) {
    if (check.claim != claim) {
      continue;
    }
    for (int size = 1; size <= 8; ++size) {
      INFO(size << " ranks");
      REQUIRE_NOTHROW(run_local_ranks(size, {.longest_background = 4096}, check.run));
    }
    return;
  }
  FAIL("no check claims that " << claim);
}

}  // namespace

TEST_CASE("local: sums of exact numbers are exact") {
  run_on_ranks("sums of exact numbers are exact");
}

TEST_CASE("local: sums run in rank order, one rounding at the end") {
  run_on_ranks("sums run in rank order, one rounding at the end");
}

TEST_CASE("local: data moves to its place") {
  run_on_ranks("all_gather puts every slice in its place");
  run_on_ranks("all_to_all transposes slices");
  run_on_ranks("broadcast reaches every rank from every root");
  run_on_ranks("sends meet receives");
}

TEST_CASE("local: long sums in the background are cut and come together again") {
  run_on_ranks("long sums in the background come together again");
}

TEST_CASE("local: operations do not hold each other up") {
  run_on_ranks("a blocked receive holds up no send");
  run_on_ranks("many operations at once keep apart");
}

TEST_CASE("local: groups work side by side") {
  run_on_ranks("groups work side by side");
}

TEST_CASE("local: work of transfers runs beside their ranks") {
  run_on_ranks("what is sent is made beside, what arrives is taken before the wait ends");
  run_on_ranks("a sum may be made of the sum before it");
  run_on_ranks("a transfer may follow one that has ended");
}

TEST_CASE("local: records tell transfers") {
  run_on_ranks("records tell transfers");
}

TEST_CASE("ranks of one host are on it, whatever nodes are emulated") {
  const Cluster links{.nodes = {{.count = 2, .devices = 2}}};
  const auto world = make_local_world(4, {.links = links});
  CHECK(world[0]->nodes() == std::vector<int>{0, 0, 1, 1});
  CHECK(world[0]->hosts() == std::vector<int>{0, 0, 0, 0});
}

}  // namespace slackline::testing
