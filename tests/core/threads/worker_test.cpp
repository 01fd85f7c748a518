#include "core/threads/worker.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

// A job that ends when it is told to.
struct Gate {
  std::atomic<bool> begun{false};
  std::atomic<bool> open{false};

  void pass() {
    begun = true;
    begun.notify_all();
    open.wait(false);
  }

  void wait_until_begun() const { begun.wait(false); }

  void let_pass() {
    open = true;
    open.notify_all();
  }
};

}  // namespace

TEST_CASE("a worker runs jobs one after the other, in order") {
  Worker worker;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    worker.submit([&order, i] { order.push_back(i); });
  }
  worker.finish();
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) {
    REQUIRE(order[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("a drained worker forgets what had not begun and goes on") {
  Worker worker;
  Gate gate;
  std::atomic<int> count = 0;
  worker.submit([&] { gate.pass(); });
  worker.submit([&] { count += 1; });
  gate.wait_until_begun();
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.let_pass();
  });
  worker.drain();
  REQUIRE(gate.open);  // not before the job under way had ended
  opens.join();
  worker.submit([&] { count += 10; });
  worker.finish();
  REQUIRE(count == 10);
}

TEST_CASE("a stopped worker runs nothing more, and drops what jobs hold") {
  Worker worker;
  worker.stop();
  const auto held = std::make_shared<int>(1);
  bool ran = false;
  worker.submit([&ran, held] { ran = true; });
  worker.finish();
  REQUIRE_FALSE(ran);
  REQUIRE(held.use_count() == 1);
}

TEST_CASE("a finished worker holds nothing of its jobs") {
  Worker worker;
  const auto held = std::make_shared<int>(1);
  worker.submit([held] {});
  worker.finish();
  REQUIRE(held.use_count() == 1);
}

}  // namespace slackline
