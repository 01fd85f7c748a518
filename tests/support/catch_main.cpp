#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <iostream>

#include "tests/support/skipped.h"

namespace slackline::testing {

namespace {

int num_skipped = 0;

}  // namespace

void skip_test(const std::string& reason) {
  ++num_skipped;
  std::cerr << "SKIPPED: " << reason << '\n';
}

}  // namespace slackline::testing

int main(int argc, char** argv) {
  using slackline::testing::kSkippedExitCode;
  using slackline::testing::num_skipped;
  Catch::Session session;
#if __has_include(<catch2/catch_session.hpp>)
  session.configData().allowZeroTests = true;  // as Catch2 2 does: not every program has slow ones
#endif
  const int result = session.run(argc, argv);
  return result == 0 && num_skipped > 0 ? kSkippedExitCode : result;
}
