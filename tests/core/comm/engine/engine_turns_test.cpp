#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/comm/engine/engine.h"
#include "core/comm/transport/bell.h"

// Who moves the data: the engine's own thread, or a rank that waits.
namespace slackline {
namespace {

using Clock = Transport::Clock;

// One message at a time, which ends in the first call of progress() that `ends` agrees to.
class OneMessage final : public Transport {
 public:
  // `bell`: what tells of its end, null: nothing does; `calls`: counts calls of peers.
  OneMessage(MessageListener& listener,
             std::function<bool()> ends,
             Bell* bell = nullptr,
             std::atomic<int>* calls = nullptr)
      : listener_(listener), ends_(std::move(ends)), bell_(bell), calls_(calls) {}

  void open_group(std::uint32_t /*id*/, const std::vector<int>& /*members*/) override {}

  void post(const Message& message) override { posted_.push_back(message); }

  bool progress() override {
    if (posted_.empty() || !ends_()) {
      return false;
    }
    const Message message = posted_.back();
    posted_.pop_back();
    listener_.message_done(message);
    return true;
  }

  [[nodiscard]] bool needs_polling() const override { return true; }

  [[nodiscard]] Bell* bell() override { return bell_; }

  [[nodiscard]] bool bell_tells_all() const override { return bell_ != nullptr; }

  void call_peers() override { ++*calls_; }

  void announce_failure(const std::string& /*reason*/) override {}

  void close() override {}

  void abort(int /*code*/) override {}

 private:
  MessageListener& listener_;
  std::function<bool()> ends_;
  Bell* bell_;
  std::atomic<int>* calls_;
  std::vector<Message> posted_;
};

std::unique_ptr<Engine> engine_whose_message_ends(const std::function<bool()>& ends,
                                                  bool free_cores) {
  return std::make_unique<Engine>(
      [&](MessageListener& listener, EngineOptions&) {
        return std::make_unique<OneMessage>(listener, ends);
      },
      EngineOptions{.world = {.timeout_seconds = 10.0}, .free_cores = free_cores});
}

// A byte from rank 1 to rank 0.
class Receive {
 public:
  Receive() {
    flight_->group =
        std::make_shared<const Membership>(Membership{.members = {0, 1}, .axis = "two"});
    Step step;
    step.add({.way = Message::Way::receive, .peer = 1, .data = &byte_, .bytes = 1});
    flight_->moves.steps.push_back(std::move(step));
  }

  [[nodiscard]] const std::shared_ptr<Flight>& flight() const { return flight_; }

  [[nodiscard]] bool is_over() const { return flight_->status.load() != Flight::under_way; }

 private:
  std::byte byte_{};
  std::shared_ptr<Flight> flight_ = std::make_shared<Flight>();
};

double own_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST_CASE("a rank that waits moves its data itself") {
  const bool free_cores = GENERATE(false, true);
  const std::thread::id rank = std::this_thread::get_id();
  const auto engine =
      engine_whose_message_ends([rank] { return std::this_thread::get_id() == rank; }, free_cores);
  const Receive receive;
  engine->submit(receive.flight());
  engine->wait(*receive.flight());
  REQUIRE(receive.flight()->status.load() == Flight::finished);
}

TEST_CASE("data of a rank that does something else moves too") {
  const bool free_cores = GENERATE(false, true);
  const std::thread::id rank = std::this_thread::get_id();
  const auto engine =
      engine_whose_message_ends([rank] { return std::this_thread::get_id() != rank; }, free_cores);
  const Receive receive;
  engine->submit(receive.flight());
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (!receive.is_over() && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(receive.is_over());
  engine->wait(*receive.flight());
}

TEST_CASE("a rank that waits for long sleeps, and the engine's thread looks for it") {
  const auto begin = Clock::now();
  const auto engine = engine_whose_message_ends(
      [begin] { return Clock::now() - begin > std::chrono::milliseconds(400); }, false);
  const Receive receive;
  engine->submit(receive.flight());
  const double before = own_cpu_seconds();
  engine->wait(*receive.flight());
  REQUIRE(receive.flight()->status.load() == Flight::finished);
  REQUIRE(own_cpu_seconds() - before < 0.2);  // it looks for 0.02 s; without sleep it takes 0.4
}

TEST_CASE("a rank that listens for its bell sleeps, and calls those that it waits for") {
  Bell bell;
  std::atomic<bool> ends{false};
  std::atomic<int> calls{0};
  Engine engine(
      [&](MessageListener& listener, EngineOptions&) {
        return std::make_unique<OneMessage>(
            listener, [&] { return ends.load(); }, &bell, &calls);
      },
      EngineOptions{.world = {.timeout_seconds = 30.0}, .crowded = true});
  const Receive receive;
  engine.submit(receive.flight());
  std::atomic<double> used{0.0};
  std::thread rank([&] {
    const double before = own_cpu_seconds();
    engine.wait(*receive.flight());
    used = own_cpu_seconds() - before;
  });
  const auto begin = Clock::now();
  while (calls < 9 && Clock::now() - begin < std::chrono::seconds(20)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::chrono::duration<double> waited = Clock::now() - begin;
  ends = true;
  bell.ring(Bell::Listener::rank);
  rank.join();
  REQUIRE(receive.flight()->status.load() == Flight::finished);
  // After 1 ms, and each time after twice that: the ninth after 256 ms.
  REQUIRE(calls >= 9);
  REQUIRE(waited.count() > 0.2);
  REQUIRE(used.load() < 0.5 * waited.count());
}

TEST_CASE("a rank that waits for itself is given up after the timeout, by name") {
  const auto engine = std::make_unique<Engine>(
      [](MessageListener& listener, EngineOptions&) {
        return std::make_unique<OneMessage>(listener, [] { return false; });
      },
      EngineOptions{.world = {.timeout_seconds = 0.1}});
  const Receive receive;
  engine->submit(receive.flight());
  REQUIRE_THROWS_WITH(engine->wait(*receive.flight()),
                      Catch::Contains("waiting for world rank 1") && Catch::Contains("no answer"));
}

TEST_CASE("jobs of the engine's thread come to their turn while a rank looks for itself") {
  std::atomic<bool> ends{false};
  const auto engine = engine_whose_message_ends([&] { return ends.load(); }, false);
  const Receive receive;
  engine->submit(receive.flight());
  std::thread rank([&] { engine->wait(*receive.flight()); });
  std::thread::id ran_on;
  engine->run_here([&] { ran_on = std::this_thread::get_id(); });
  const std::thread::id waits_on = rank.get_id();
  ends = true;
  rank.join();
  REQUIRE(ran_on != std::this_thread::get_id());
  REQUIRE(ran_on != waits_on);
}

}  // namespace
}  // namespace slackline
