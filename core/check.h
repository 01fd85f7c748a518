#pragma once

#include <sstream>
#include <string>

#include "core/error.h"

namespace slackline::internal {

[[noreturn]] void check_failed(const char* expression,
                               const std::string& detail,
                               const char* file,
                               int line);

template <typename A, typename B>
[[noreturn]] void check_equal_failed(
    const char* expression, const A& a, const B& b, const char* file, int line) {
  std::ostringstream detail;
  detail << a << " vs " << b;
  check_failed(expression, detail.str(), file, line);
}

}  // namespace slackline::internal

// Our own invariants. A failure is a bug of ours (exit code 1) and prints expression, values and
// place. What a user can get wrong throws ConfigError or FileError instead.
#define SL_CHECK(condition, detail)                                                  \
  do {                                                                               \
    if (!(condition)) {                                                              \
      ::slackline::internal::check_failed(#condition, (detail), __FILE__, __LINE__); \
    }                                                                                \
  } while (false)

#define SL_CHECK_EQ(a, b)                                                                    \
  do {                                                                                       \
    if (!((a) == (b))) {                                                                     \
      ::slackline::internal::check_equal_failed(#a " == " #b, (a), (b), __FILE__, __LINE__); \
    }                                                                                        \
  } while (false)
