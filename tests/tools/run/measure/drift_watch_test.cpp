#include "tools/run/measure/drift_watch.h"

#include "tests/support/catch.h"

namespace slackline {

namespace {

// Whether any of `count` such steps is told to have drifted.
bool drifts(DriftWatch& watch, int count, double seconds) {
  bool drifted = false;
  for (int i = 0; i < count; ++i) {
    drifted = watch.add(seconds) || drifted;
  }
  return drifted;
}

constexpr int kUntilUsual = DriftWatch::kSettling + DriftWatch::kWindow;

}  // namespace

TEST_CASE(
    "steps that stay as they are do not drift, slow ones at first and some between included") {
  DriftWatch watch;
  CHECK_FALSE(drifts(watch, DriftWatch::kSettling, 9.0));
  CHECK_FALSE(drifts(watch, DriftWatch::kWindow, 1.0));
  CHECK(watch.usual_seconds() == 1.0);
  for (int i = 0; i < 50; ++i) {
    CHECK_FALSE(watch.add(i % 3 == 0 ? 5.0 : 1.2));
  }
}

TEST_CASE("most of a window longer or shorter by more than a quarter is drift") {
  for (const double seconds : {1.3, 0.7}) {
    DriftWatch watch;
    REQUIRE_FALSE(drifts(watch, kUntilUsual, 1.0));
    CHECK_FALSE(drifts(watch, DriftWatch::kWindow / 2 - 1, seconds));
    CHECK(drifts(watch, 2, seconds));
  }
  DriftWatch watch;
  REQUIRE_FALSE(drifts(watch, kUntilUsual, 1.0));
  CHECK_FALSE(drifts(watch, 50, 1.24));
}

TEST_CASE("after a restart another time is usual") {
  DriftWatch watch;
  REQUIRE_FALSE(drifts(watch, kUntilUsual, 1.0));
  REQUIRE(drifts(watch, DriftWatch::kWindow, 2.0));
  watch.restart();
  CHECK(watch.usual_seconds() == 0.0);
  CHECK_FALSE(drifts(watch, kUntilUsual + 20, 2.0));
  CHECK(watch.usual_seconds() == 2.0);
}

}  // namespace slackline
