// The tokenizer of a checkpoint beside that of the data, through the binary.

#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "core/file_io.h"
#include "data/formats/tokenizer_file.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/training_run.h"

namespace slackline {
namespace {

using testing::require_done;

// A finished run on bytes, and its data once more in other company.
class TokenizedRun : public TrainingRun {
 public:
  TokenizedRun() {
    INFO("the first run");
    REQUIRE(train({"run.steps=3"}).exit_code == 0);
  }

  // The tokens of the corpus without a tokenizer, or with another one.
  void copy_tokens(const std::string& name, const std::string& tokenizer = "") const {
    for (const char* suffix : {".bin", ".idx"}) {
      std::filesystem::copy(path("corpus") + suffix, path(name) + suffix);
    }
    if (!tokenizer.empty()) {
      write_file_atomically(tokenizer_path(path(name)), tokenizer);
    }
  }

  [[nodiscard]] std::string data(const std::string& name) const {
    return fmt::format(R"(data.train=[{{"path": "{}"}}])", path(name));
  }

  [[nodiscard]] std::string other_run() const { return "run.dir=\"" + path("other") + "\""; }
};

std::string gpt2_tokenizer() {
  return tokenizer_to_json(*load_gpt2_tokenizer(SL_SOURCE_DIR "/tests/golden/bpe"));
}

}  // namespace

TEST_CASE("data of another tokenizer than the checkpoint's is refused, both files named") {
  const TokenizedRun run;
  run.copy_tokens("words", gpt2_tokenizer());
  const std::string checkpoint = run.checkpoint(3);
  const ProcessResult results[] = {
      run_slackline({"evaluate", "--checkpoint", checkpoint, "--data", run.path("words")}),
      run.train({run.other_run(), run.data("words"), "checkpoint.init_from=" + checkpoint}),
      run.train({run.other_run(), run.data("words"), "checkpoint.resume_from=" + checkpoint}),
      run.train({run.data("words")}, {"--resume"})};
  for (const ProcessResult& result : results) {
    CHECK(result.exit_code == 3);
    CHECK_THAT(result.error,
               Catch::Contains(run.path("words") + ".tokenizer.json: another tokenizer than " +
                               checkpoint + "/tokenizer.json"));
  }
  CHECK_FALSE(path_exists(run.path("other/checkpoints")));
}

TEST_CASE("where the data brings no tokenizer the checkpoint's goes on into the new checkpoints") {
  const TokenizedRun run;
  run.copy_tokens("bare");
  const std::string source = GENERATE("init_from", "resume_from");
  CAPTURE(source);
  require_done(run.train(
      {run.other_run(), run.data("bare"), "checkpoint." + source + "=" + run.checkpoint(3)}));
  const std::string checkpoint = run.checkpoint(6, "other");
  REQUIRE(path_exists(checkpoint + "/tokenizer.json"));
  CHECK(read_file(checkpoint + "/tokenizer.json") ==
        read_file(run.checkpoint(3) + "/tokenizer.json"));
  const ProcessResult text =
      run_slackline({"generate", "--checkpoint", checkpoint, "--prompt", "line ", "--tokens", "3"});
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.out, Catch::StartsWith("line "));
  const ProcessResult evaluated =
      run_slackline({"evaluate", "--checkpoint", checkpoint, "--data", run.path("bare")});
  CHECK(evaluated.exit_code == 0);
}

TEST_CASE("a checkpoint and data that both come without a tokenizer train and evaluate") {
  const TokenizedRun run;
  run.copy_tokens("bare");
  REQUIRE(run.train({run.other_run(), run.data("bare")}).exit_code == 0);
  CHECK_FALSE(path_exists(run.checkpoint(6, "other") + "/tokenizer.json"));
  const ProcessResult evaluated = run_slackline(
      {"evaluate", "--checkpoint", run.checkpoint(6, "other"), "--data", run.path("corpus")});
  CHECK(evaluated.exit_code == 0);
}

}  // namespace slackline
