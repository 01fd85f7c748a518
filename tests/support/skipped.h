#pragma once

#include <string>

namespace slackline::testing {

// Notes that the current test cannot run here, and why; the test then returns. A program whose
// tests have passed but for those that were skipped ends with kSkippedExitCode, which ctest shows
// as skipped where the test's SKIP_RETURN_CODE says so.
void skip_test(const std::string& reason);

inline constexpr int kSkippedExitCode = 77;

}  // namespace slackline::testing
