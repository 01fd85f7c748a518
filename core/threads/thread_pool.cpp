#include "core/threads/thread_pool.h"

#include <algorithm>
#include <cstdlib>
#include <omp.h>
#include <sched.h>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slackline {

namespace {

// How often a waiting worker looks for work before it sleeps: about 50 us, which covers the
// serial code between two loops of a step and costs nothing once the step is over.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Flushes denormals on this thread while alive.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : saved_(_mm_getcsr()) {
    _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }

  ~FlushDenormals() {
    _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;
  unsigned saved_;
#else
  FlushDenormals() = default;
  ~FlushDenormals() = default;
#endif
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  SL_CHECK(num_threads >= 1, "a pool of " + std::to_string(num_threads) + " threads");
  make_libraries_single_threaded();
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      workers_.emplace_back([this, thread] { worker_loop(thread); });
    }
  } catch (const std::system_error& problem) {
    stop();
    throw DeviceError(fmt::format(
        "cannot start {} threads: {}; OMP_NUM_THREADS says how many", num_threads, problem.what()));
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    ++generation_;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::run(std::size_t num_tasks, Call call, const void* context) {
  SL_CHECK(call_ == nullptr, "a parallel loop inside a parallel loop");
  call_ = call;
  context_ = context;
  num_tasks_ = num_tasks;
  next_task_ = 0;
  failure_ = nullptr;
  if (num_tasks > 1 && !workers_.empty()) {
    running_ = static_cast<int>(workers_.size());
    {
      const std::lock_guard lock(mutex_);
      ++generation_;
    }
    wake_.notify_all();
  }
  work(0);
  for (int spin = 0; running_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  call_ = nullptr;
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

void ThreadPool::work(int thread) {
  const FlushDenormals flush;
  try {
    for (std::size_t task = next_task_++; task < num_tasks_; task = next_task_++) {
      call_(context_, task, thread);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = std::current_exception();
    }
    next_task_ = num_tasks_;
  }
}

void ThreadPool::worker_loop(int thread) {
  make_libraries_single_threaded();
  std::size_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen;
         ++spin) {
      pause();
    }
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
    }
    if (stop_) {
      return;
    }
    work(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void make_libraries_single_threaded() {
  omp_set_num_threads(1);
}

int num_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0
             ? CPU_COUNT(&allowed)
             : static_cast<int>(std::thread::hardware_concurrency());
}

int default_num_threads(int ranks_on_node) {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int value = std::atoi(text);
    if (value > 0) {
      return value;
    }
  }
  // A launcher that binds a rank to some of the node's cores binds as large a share of its ranks
  // there.
  const int cores = num_cores();
  const int node_cores = std::max(cores, static_cast<int>(std::thread::hardware_concurrency()));
  const int sharing = std::max(1, ranks_on_node * cores / node_cores);
  return std::max(1, cores / sharing);
}

}  // namespace slackline
