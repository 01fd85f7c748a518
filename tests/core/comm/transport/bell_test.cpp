#include "core/comm/transport/bell.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace slackline {
namespace {

using Listener = Bell::Listener;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// No test waits for so long: a wait that nothing ends is one that fails.
constexpr seconds kLong{20};

double seconds_of(const std::function<void()>& job) {
  const auto begin = Clock::now();
  job();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Waits in a thread of its own, once the bell knows of it.
class Waiting {
 public:
  Waiting(Bell& bell, Listener listener)
      : bell_(bell), listener_(listener), thread_([this] {
          while (!over_) {
            const std::uint32_t heard = bell_.rings();
            ++listens_;
            bell_.wait(listener_, heard, kLong);
            ++wakes_;
          }
        }) {
    while (listens_ == 0) {
      std::this_thread::yield();
    }
    // Between its count and its sleep is an instant that nobody can see, and a lost core may draw
    // out.
    std::this_thread::sleep_for(milliseconds(200));
  }

  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  ~Waiting() {
    if (!over_) {  // a test that failed
      over_ = true;
      bell_.ring(listener_);
    }
    thread_.join();
  }

  [[nodiscard]] bool wakes_within(Clock::duration time, int wakes) const {
    const auto until = Clock::now() + time;
    while (wakes_ < wakes && Clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return wakes_ >= wakes;
  }

  // To be called before the ring that ends its last wait.
  void end() { over_ = true; }

 private:
  Bell& bell_;
  Listener listener_;
  std::atomic<bool> over_{false};
  std::atomic<int> listens_{0};
  std::atomic<int> wakes_{0};
  std::thread thread_;
};

TEST_CASE("a bell that was rung since it was heard keeps nobody waiting") {
  Bell bell;
  const std::uint32_t heard = bell.rings();
  bell.ring();
  REQUIRE(seconds_of([&] { bell.wait(Listener::rank, heard, kLong); }) < 10.0);
}

TEST_CASE("a wait that nobody ends takes as long as it may") {
  Bell bell;
  const double taken =
      seconds_of([&] { bell.wait(Listener::rank, bell.rings(), milliseconds(50)); });
  REQUIRE(taken >= 0.05);
  REQUIRE(taken < 10.0);
}

TEST_CASE("a ring wakes ranks that listen, and the engine where none does") {
  Bell bell;
  Waiting engine(bell, Listener::engine);
  {
    Waiting rank(bell, Listener::rank);
    rank.end();
    bell.ring();
    REQUIRE(rank.wakes_within(kLong, 1));
    REQUIRE_FALSE(engine.wakes_within(milliseconds(100), 1));
  }
  bell.ring(Listener::rank);
  REQUIRE_FALSE(engine.wakes_within(milliseconds(100), 1));
  engine.end();
  bell.ring();
  REQUIRE(engine.wakes_within(kLong, 1));
}

TEST_CASE("a ring for the engine wakes no rank") {
  Bell bell;
  Waiting engine(bell, Listener::engine);
  Waiting rank(bell, Listener::rank);
  engine.end();
  bell.ring(Listener::engine);
  REQUIRE(engine.wakes_within(kLong, 1));
  REQUIRE_FALSE(rank.wakes_within(milliseconds(100), 1));
  rank.end();
  bell.ring();
  REQUIRE(rank.wakes_within(kLong, 1));
}

TEST_CASE("a bell in shared memory wakes another process") {
  void* const memory =
      mmap(nullptr, sizeof(Bell), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  Bell& bell = *new (memory) Bell;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::uint32_t heard = bell.rings();
    bell.wait(Listener::rank, heard, kLong);
    _exit(bell.rings() == heard ? 1 : 0);
  }
  const double taken = seconds_of([&] {
    int status = 0;
    pid_t ended = 0;
    while (ended == 0) {  // the first ring may come before it listens
      bell.ring();
      std::this_thread::sleep_for(milliseconds(10));
      ended = waitpid(child, &status, WNOHANG);
    }
    CHECK(ended == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  });
  REQUIRE(taken < 10.0);
  munmap(memory, sizeof(Bell));
}

}  // namespace
}  // namespace slackline
