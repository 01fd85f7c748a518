#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace slackline {

// A fixed set of threads that run loops together. The calling thread is thread 0 and works too.
//
// Rules for callers, so that results never depend on the number of threads:
// 1. the list of tasks and what each computes depend on shapes alone;
// 2. a task writes only its own outputs; partial sums are combined afterwards in task order.
//
// Tasks run with denormals flushed to zero (a decaying moment would else cost 100 x per element).
// One loop at a time: a loop inside a task is a bug. Owned and used by one thread.
class ThreadPool {
 public:
  // Throws DeviceError where the system does not start as many. REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, num_tasks), on threads 0 .. num_threads()-1,
  // and returns when all have ended. Tasks are taken in ascending order. The first exception of a
  // task is rethrown here after the others have stopped.
  template <typename Body>
  void parallel_for(std::size_t num_tasks, const Body& body) {
    run(
        num_tasks,
        [](const void* context, std::size_t task, int thread) {
          (*static_cast<const Body*>(context))(task, thread);
        },
        &body);
  }

 private:
  using Call = void (*)(const void* context, std::size_t task, int thread);

  void stop();
  void run(std::size_t num_tasks, Call call, const void* context);
  void work(int thread);
  void worker_loop(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<std::size_t> generation_{0};  // counts loops; workers wait for it to move
  std::atomic<int> running_{0};             // workers still inside the current loop
  std::atomic<bool> stop_{false};

  // The current loop; written before generation_ moves.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::size_t num_tasks_ = 0;
  std::atomic<std::size_t> next_task_{0};
  std::exception_ptr failure_;
};

// oneDNN is built on OpenMP here. Tells its runtime to use one thread for calls made from the
// calling thread, since our own pool splits the work (docs/numerics.md says why). Cheap; call it
// once on every thread that calls such a library.
void make_libraries_single_threaded();

// Cores this process may run on.
[[nodiscard]] int num_cores();

// Threads of this rank: OMP_NUM_THREADS where it is set to a positive number, else the cores this
// process may use divided by the ranks that are taken to share them: the same part of the node's
// ranks as they are of its cores (at least 1).
[[nodiscard]] int default_num_threads(int ranks_on_node = 1);

}  // namespace slackline
