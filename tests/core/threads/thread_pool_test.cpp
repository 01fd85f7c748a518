#include "core/threads/thread_pool.h"

#include <numeric>
#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("every task runs exactly once, whatever the number of threads") {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (const std::size_t num_tasks : {0U, 1U, 2U, 7U, 1000U}) {
      std::vector<int> runs(num_tasks, 0);
      std::vector<int> threads(num_tasks, 0);  // looked at below: Catch2 is for one thread
      pool.parallel_for(num_tasks, [&](std::size_t task, int thread) {
        threads[task] = thread;
        ++runs[task];
      });
      for (const int thread : threads) {
        REQUIRE((thread >= 0 && thread < num_threads));
      }
      REQUIRE(std::accumulate(runs.begin(), runs.end(), 0) == static_cast<int>(num_tasks));
      for (const int count : runs) {
        REQUIRE(count == 1);
      }
    }
  }
}

TEST_CASE("an exception in a task reaches the caller and the pool goes on working") {
  ThreadPool pool(3);
  const auto failing = [](std::size_t task, int) {
    if (task == 5) {
      throw std::runtime_error("task five");
    }
  };
  REQUIRE_THROWS_WITH(pool.parallel_for(100, failing), "task five");
  int count = 0;
  pool.parallel_for(1, [&](std::size_t, int) { ++count; });
  REQUIRE(count == 1);
}

TEST_CASE("a loop inside a loop is refused") {
  ThreadPool pool(2);
  const auto nested = [&](std::size_t, int) { pool.parallel_for(1, [](std::size_t, int) {}); };
  REQUIRE_THROWS_WITH(pool.parallel_for(1, nested), Catch::Contains("inside a parallel loop"));
}

}  // namespace slackline
