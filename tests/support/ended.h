#pragma once

#include <string>

#include "tests/support/catch.h"
#include "tests/support/run_process.h"

namespace slackline::testing {

// Requires that a program ended well, and shows its messages where it did not. Returns the result.
inline ProcessResult require_done(ProcessResult result) {
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  return result;
}

// Requires that a program ended with this exit code and says `message`.
inline void require_refusal(const ProcessResult& result, int code, const std::string& message) {
  INFO(result.error);
  REQUIRE(result.exit_code == code);
  REQUIRE_THAT(result.error, Catch::Contains(message));
}

}  // namespace slackline::testing
