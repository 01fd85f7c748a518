#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/engine/background_sends.h"
#include "core/comm/engine/flight.h"
#include "core/comm/engine/scratch_pool.h"
#include "core/comm/engine/sum_window.h"
#include "core/comm/transport/bell.h"
#include "core/comm/transport/transport.h"
#include "core/comm/world.h"
#include "core/threads/worker.h"

namespace slackline {

struct EngineOptions {
  WorldOptions world{};
  bool free_cores = false;    // whether a core is left for looking on without sleep
  bool crowded = false;       // whether ranks of this host share cores
  double clock_offset = 0.0;  // seconds from this host's steady clock to rank 0's
};

// Moves the data of a process. Operations are taken in the order of submission; a turn posts
// their messages, looks at all of them, hands sums to a worker and a transfer's work to that of its
// submitter, and goes on to the next step. It does not compute and never waits for one message;
// but it adds sums that are too small to be worth a hand-over, and larger ones in the turn of a
// rank that waits.
//
// Turns are taken one after the other by the engine's own thread, by a rank that waits and so looks
// for itself, and, where no core is left for the engine's thread, by one that submits. The
// transport is called within turns alone; it is made, opened for groups and ended on the engine's
// thread, which also does what is due while ranks compute.
//
// Invariants: 1. A flight is in flights_ from its start to its end, and its end is told once.
// 2. After a failure nothing is posted any more and every flight, old or new, fails with its text.
class Engine final : private MessageListener {
 public:
  // Makes the transport, on the engine's thread; may set what it finds out in the options.
  using MakeTransport = std::function<std::unique_ptr<Transport>(MessageListener&, EngineOptions&)>;

  Engine(const MakeTransport& make_transport, const EngineOptions& options);
  // Returns when everything submitted has ended. After a failure it touches the transport no more.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void submit(std::shared_ptr<Flight> flight);

  // Blocks until the flight has ended; throws CommError when it failed, or what work of a transfer
  // of its rank threw.
  void wait(Flight& flight);

  // Somebody waits for the flight from now on, but not in wait(). From any thread.
  void note_wait(Flight& flight);

  // Makes every flight of this world fail with `reason`, and tells the other processes.
  void fail(const std::string& reason);

  [[nodiscard]] bool has_failed() const { return has_failed_; }

  // Like fail(), then ends all processes of the world, this one with `code`.
  [[noreturn]] void abort(const std::string& reason, int code);

  // Runs `job` on the engine's thread and returns when it has ended; nothing else moves meanwhile.
  void run_here(const std::function<void()>& job);

  // Opens a group (Transport::open_group). Throws CommError when that takes longer than a wait may.
  void open_group(std::uint32_t id, const std::vector<int>& members);

  // Tells what the links between ranks are like from now on, by which background sends keep them
  // busy. `nodes`: of every rank of the world.
  void set_links(const Cluster& links, const std::vector<int>& nodes);

  [[nodiscard]] double now() const;  // seconds of the world's clock

  [[nodiscard]] const std::shared_ptr<ScratchPool>& scratch() const { return scratch_; }

  // Bytes to which messages of Urgency::background are cut.
  [[nodiscard]] std::size_t longest_background() const { return options_.world.longest_background; }

 private:
  using Clock = Transport::Clock;
  using Job = std::function<void()>;

  static constexpr std::chrono::milliseconds kCheckInterval{20};  // of waits

  // Who takes a turn.
  enum class Taker { engine, submitter, waiter };

  // Holds what threads leave for the next turn.
  struct Inbox {
    std::vector<std::shared_ptr<Flight>> submitted;
    std::vector<Flight*> worked;  // whose sum or work has ended
    std::vector<std::pair<std::shared_ptr<Flight>, std::size_t>> parts;  // that can go now
    std::optional<std::string> failure;
    std::optional<int> abort_code;
    std::vector<std::packaged_task<void()>> jobs;
    bool stop = false;
    bool look = false;  // sooner than the engine's thread meant to

    [[nodiscard]] bool empty() const;
    // Returns all that is in it, and empties it; jobs, abort, stop and look stay for the engine's
    // thread unless that is `taker`.
    [[nodiscard]] Inbox take(Taker taker);
  };

  void ring();
  void ring_thread();
  void tell(Flight& flight, int status);
  [[nodiscard]] bool bell_suffices() const;
  [[nodiscard]] std::future<void> leave_job(Job job);
  void message_done(const Message& message) override;

  void run(const MakeTransport& make_transport, std::promise<void>& made);
  void serve();
  bool take_turn(Taker taker);
  void look_for(const Flight& flight);
  void wake();
  void wake_in_time();
  bool take_inbox(Taker taker);
  void list(const std::vector<std::shared_ptr<Flight>>& submitted);
  void begin(Flight& flight);
  void resume(Flight& flight);
  void advance(Flight& flight);
  [[nodiscard]] bool has_moves(Flight& flight);
  void end_sum(Flight& flight);
  void post_step(Flight& flight);
  void post_piece(Flight& flight, std::size_t i);
  [[nodiscard]] bool post_background();
  void sum_step(Flight& flight);
  void do_work(Flight& flight, const TransferWork::Start& start, Job job, Job beside);
  void tell_worked(Flight& flight);
  void fail_work(Flight& flight, const std::exception& problem);
  void end_moves(Flight& flight);
  void finish(Flight& flight);
  void advance_ready();
  [[nodiscard]] const Flight& awaited(const Flight& flight) const;
  void check_waits();
  void stop_flights(const std::string& reason);
  void fail_flight(Flight& flight);
  [[noreturn]] void leave(int code);
  [[nodiscard]] bool rest(std::uint32_t heard, Clock::time_point until);
  [[nodiscard]] std::optional<Clock::time_point> next_due() const;
  [[nodiscard]] Clock::time_point rest_until() const;
  void end_if_stuck();

  EngineOptions options_;
  // Shared with leases, which end on the threads of submitters.
  std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>();
  std::mutex turn_;  // of whoever takes one, and over everything down to `end_seen_`
  std::atomic<std::thread::id> taker_{};  // whose turn it is; nobody's: the default
  std::unique_ptr<Transport> transport_;
  std::vector<std::shared_ptr<Flight>> flights_;  // shared with the handles of submitters
  std::vector<Flight*> ready_;
  std::map<const Membership*, SumWindow> sum_windows_;  // of groups that have sums under way
  std::vector<Flight*> held_sums_;                      // by their windows
  BackgroundSends background_;
  std::uint64_t submitted_ = 0;  // flights so far
  std::optional<std::string> failure_;
  std::atomic<bool> has_failed_{false};  // for other threads: whether there is one
  bool failed_first_ = false;            // it arose in this process
  bool stop_ = false;
  Clock::time_point last_event_{};
  Clock::time_point last_check_{};
  bool waiter_takes_turn_ = false;
  double end_seen_ = 0.0;

  std::mutex mutex_;
  Bell own_bell_;
  Bell* bell_ = &own_bell_;  // the transport's, where it has one; from the start on
  Inbox inbox_;
  std::map<int, std::exception_ptr> causes_;  // what work of ranks threw first, if not CommError
  std::atomic<bool> mail_{false};             // the inbox may hold something
  std::atomic<int> looking_{0};               // ranks that wait and take turns
  // When the engine's thread looks again, as a count of its clock; 0: it does not rest.
  std::atomic<Clock::rep> rests_until_{0};

  Worker sums_;
  std::promise<void> ended_;
  std::thread thread_;
};

}  // namespace slackline
