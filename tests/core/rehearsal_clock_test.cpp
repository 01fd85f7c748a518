#include "core/rehearsal_clock.h"

#include <chrono>

#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/matmul.h"
#include "core/tensor/stream.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.02;     // of an op
constexpr double kNotSlept = 100e-6;  // what the clock may still owe at any time

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

TEST_CASE("ops of the rehearsal device last as long as they are said to, whatever they call") {
  RehearsalClock clock;
  const Clock::time_point start = Clock::now();
  for (int op = 1; op <= 4; ++op) {
    clock.begin({0, 0}, kSeconds);
    clock.work(1e9);
    clock.work(3e9);
    clock.end();
    REQUIRE(seconds_since(start) >= op * kSeconds - kNotSlept);
  }
  clock.begin({0, 1}, kSeconds);  // without any work
  clock.end();
  REQUIRE(seconds_since(start) >= 5 * kSeconds - kNotSlept);
}

// What one sleep takes too long the next ones take less, so that many ops together take their time
// and one late wake-up, not one each: half as much again is far more than a busy machine adds.
TEST_CASE("many ops of the rehearsal device together take no longer than they are said to") {
  constexpr int kOps = 100;
  constexpr double kShort = 2e-3;
  RehearsalClock clock;
  const Clock::time_point start = Clock::now();
  for (int op = 0; op < kOps; ++op) {
    clock.begin({0, 0}, kShort);
    clock.work(1e9);
    clock.work(3e9);
    clock.end();
  }
  REQUIRE(seconds_since(start) >= kOps * kShort - kNotSlept);
  REQUIRE(seconds_since(start) < 1.5 * kOps * kShort);
}

TEST_CASE("an op's seconds pass beside its work once its work is known") {
  RehearsalClock clock;
  const Clock::time_point start = Clock::now();
  clock.begin({0, 0}, kSeconds);
  clock.work(1e9);
  clock.work(3e9);
  clock.end();
  clock.begin({0, 0}, kSeconds);
  clock.work(1e9);
  REQUIRE(seconds_since(start) >= 1.25 * kSeconds - kNotSlept);
  clock.work(3e9);
  REQUIRE(seconds_since(start) >= 2.0 * kSeconds - kNotSlept);
  clock.end();
}

TEST_CASE("ops on a stream of the rehearsal device leave their results alone") {
  RehearsalClock clock;
  Stream stream({.rehearsal = &clock});
  std::vector<float> a = {1.0F, 2.0F};
  std::vector<float> b = {5.0F, 5.0F};
  cast(stream, Tensor(std::span(a)), Tensor(std::span(b)));
  std::vector<float> c = {7.0F};
  clock.begin({0, 0}, 0.0);
  matmul(stream,
         {.a = Tensor(std::span(a)).reshaped({1, 2}),
          .b = Tensor(std::span(b)).reshaped({2, 1}),
          .c = Tensor(std::span(c)).reshaped({1, 1})});
  clock.end();
  REQUIRE(b == std::vector<float>{5.0F, 5.0F});
  REQUIRE(c == std::vector<float>{7.0F});
}

}  // namespace slackline
