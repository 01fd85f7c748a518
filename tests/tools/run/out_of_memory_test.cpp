// What a run says that finds no memory: whose, how much, what is held, and what would fit.

#include "tests/support/catch.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;

TEST_CASE("a run without enough memory names the buffer, what is held and a config that fits") {
  const TrainingRun run;
  const std::vector<std::string> wide = {
      "batch.global=16384", "batch.micro=16384", "model.hidden=256", "run.steps=1"};
  // Addresses for the program, what it links, its threads' stacks and weights, and not for ten
  // times as many bytes of activations.
  const ProcessResult refused = run.train_in_shell("ulimit -v 6000000;", wide);
  INFO(refused.error);
  CHECK(refused.exit_code == 4);
  CHECK_THAT(refused.error, Contains("out of host memory for buffer '"));
  CHECK_THAT(refused.error, Contains("Held:\n"));
  CHECK_THAT(refused.error, Contains("weights"));
  CHECK_THAT(refused.error, Contains("hint: with --set batch.micro="));
}

}  // namespace slackline
