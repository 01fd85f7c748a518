#include "compress/residuals.h"

#include <vector>

#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("a message's residual is cleared, which under lazy feedback is that of all messages") {
  const std::vector<CodecPart> parts = {{.name = "a", .shape = {.rows = 1, .columns = 1}}};
  for (const ErrorFeedback feedback : {ErrorFeedback::immediate, ErrorFeedback::lazy}) {
    Residuals residuals(feedback, parts, 2);
    const auto owed = [&](int message) { return residuals.of(message)[0].data<float>(); };
    *owed(0) = 1.0F;
    *owed(1) = 2.0F;
    residuals.clear(1);
    CHECK(*owed(0) == (feedback == ErrorFeedback::lazy ? 0.0F : 1.0F));
    CHECK(*owed(1) == 0.0F);
  }
}

}  // namespace slackline
