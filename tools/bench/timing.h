#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <vector>

namespace slackline {

// A spread is what to report of repeated measurements of one thing.
struct Spread {
  double low = 0.0;
  double median = 0.0;
  double high = 0.0;
};

// REQUIRES: there is a value.
[[nodiscard]] inline Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

template <typename Body>
[[nodiscard]] double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A benchmark's main: what `run` returns, or 1 and the message of what it throws.
[[nodiscard]] inline int bench_main(int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace slackline
