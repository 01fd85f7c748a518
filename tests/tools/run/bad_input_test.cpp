// Whatever a user can get wrong: one clear message, the documented exit code, nothing damaged.

#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/four_rank_links.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;
using testing::require_refusal;

namespace {

// Inverts one bit in the middle of a file.
void flip_bit(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(path) / 2);
  file.seekg(middle);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(middle);
  file.put(byte);
}

std::string first_shard(const std::string& checkpoint) {
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() == ".safetensors") {
      return entry.path();
    }
  }
  return "";
}

}  // namespace

TEST_CASE("a refused run creates no checkpoints directory") {
  const TrainingRun run;
  require_refusal(run.train({"model.hiden=3"}), 2, "model.hiden");
  require_refusal(run.train({"parallel.tensor=2"}), 2, "--ranks 2");
  require_refusal(run.train({}, {"--ranks", "2"}), 2, "number of ranks = 2; got 1 x 1 x 1 = 1");
  require_refusal(run.train({"parallel.data=2"}, {"--ranks", "4"}), 2, "got 1 x 1 x 2 = 2");
  require_refusal(run.train({"parallel.tensor=3"}, {"--ranks", "3"}), 2, "model.heads");
  require_refusal(run.train({}, {"--ranks", "0"}), 2, "--ranks");
  require_refusal(run.train({}, {"--no-such-option"}), 2, "--no-such-option");
  require_refusal(run.train({"data.train.0.path=" + run.path("missing")}), 3, "missing");
  require_refusal(run.train({"model.vocab=100"}), 3, "vocabulary");
  require_refusal(run.train({"model.sequence=100000"}), 3, "100001");
  REQUIRE_FALSE(std::filesystem::exists(run.run_dir() + "/checkpoints"));
}

TEST_CASE("compression that the layout or a plan cannot have is refused, by --validate too") {
  const TrainingRun run;
  const std::vector<std::string> site = {"compress.policy=all",
                                         "compress.data_gradient.codec=cast"};
  const std::vector<std::string> plan = {"compress.policy=replay",
                                         "compress.plan=" + run.path("none.json")};
  for (const std::vector<std::string>& options : {{}, std::vector<std::string>{"--validate"}}) {
    require_refusal(run.train(site, options), 2, "compress.data_gradient: ");
    require_refusal(run.train(plan, options), 2, "none.json");
  }
  REQUIRE_FALSE(std::filesystem::exists(run.run_dir() + "/checkpoints"));
}

TEST_CASE("codecs of weights that passes gather wait for the strategy that is chosen") {
  const TrainingRun run;
  const ProcessResult result =
      run.train({"parallel.data=2",
                 "parallel.data_strategy=auto",
                 R"(compress={"policy": "all", "parameter_gather": {"codec": "cast"}})"},
                {"--validate"});
  INFO(result.error);
  CHECK(result.exit_code == 0);
}

TEST_CASE("codecs of weights that passes gather need groups of several data ranks") {
  const TrainingRun run;
  const std::vector<std::string> job = {
      "parallel.data=4",
      "parallel.data_strategy=III",
      "batch.micro=2",
      "run.steps=1",
      "run.eval_every=0",
      R"(compress={"policy": "all", "parameter_gather": {"codec": "cast"}})"};
  const auto on_nodes = [&](int nodes) {
    return with(job, {write_links(run, {.nodes = nodes, .bytes_per_second = 1e9})});
  };
  const std::vector<std::string> ranks = {"--ranks", "4"};
  const std::string refusal = "III leaves weights whole in groups of one data rank";
  for (const std::vector<std::string>& options : {ranks, std::vector<std::string>{"--validate"}}) {
    require_refusal(run.train(with(job, {"parallel.group=1"}), options), 2, refusal);
  }
  // Nodes decide when the run starts.
  require_done(run.train(on_nodes(4), {"--validate"}));
  require_refusal(run.train(on_nodes(4), ranks), 2, "compress.parameter_gather: ");
  REQUIRE_FALSE(std::filesystem::exists(run.run_dir() + "/checkpoints"));
  require_done(run.train(with(on_nodes(2), {"run.dir=" + run.path("pairs")}), ranks));
}

TEST_CASE("what train refuses without looking at data is refused by --validate too") {
  const TrainingRun run;
  for (const std::vector<std::string>& options : {{}, std::vector<std::string>{"--validate"}}) {
    require_refusal(run.train({"data.split=[1, 0, 0]"}, options), 2, "run.eval_every: needs");
    require_refusal(run.train({"run.steps=1000000000000"}, options), 2, "run.steps: x batch");
    require_refusal(run.train({}, with(options, {"--ranks", "2"})), 2, "number of ranks = 2");
  }
  REQUIRE_FALSE(std::filesystem::exists(run.run_dir()));
}

TEST_CASE("a missing or broken config is a config error") {
  const TrainingRun run;
  require_refusal(run_slackline({"train", run.path("none.json")}), 2, "none.json");
  write_file_atomically(run.path("broken.json"), "{\"run\": {\"dir\": \"x\",}\n}");
  require_refusal(run_slackline({"train", run.path("broken.json")}), 2, "line 1");
  require_refusal(run_slackline({"no-such-command"}), 2, "no-such-command");
}

TEST_CASE("an occupied run directory is refused without --resume and left as it was") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string metrics = read_file(run.run_dir() + "/metrics.jsonl");
  require_refusal(run.train(), 3, "--resume");
  REQUIRE(read_file(run.run_dir() + "/metrics.jsonl") == metrics);
}

TEST_CASE("an unwritable run directory is a file error") {
  const TrainingRun run;
  write_file_atomically(run.path("plain_file"), "x");
  require_refusal(run.train({"run.dir=" + run.path("plain_file/run")}), 3, "plain_file");
}

TEST_CASE("damaged checkpoints are refused by name, and an older one still loads") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string shard = first_shard(run.checkpoint(6));
  SECTION("flipped bit") {
    flip_bit(shard);
    require_refusal(run.train({"run.steps=8"}, {"--resume"}), 3, shard);
  }
  SECTION("truncated shard") {
    std::filesystem::resize_file(shard, std::filesystem::file_size(shard) / 2);
    const ProcessResult refused = run.train({"run.steps=8"}, {"--resume"});
    require_refusal(refused, 3, shard);
    REQUIRE_THAT(refused.error, Catch::Contains("hint: move " + run.checkpoint(6) + " away"));
  }
  SECTION("missing shard") {
    std::filesystem::remove(shard);
    require_refusal(run.train({"run.steps=8"}, {"--resume"}), 3, shard);
  }
  SECTION("garbage manifest") {
    write_file_atomically(run.checkpoint(6) + "/manifest.json", "{");
    require_refusal(run.train({"run.steps=8"}, {"--resume"}), 3, "manifest.json");
  }
  std::filesystem::remove_all(run.checkpoint(6));
  REQUIRE(run.train({}, {"--resume"}).exit_code == 0);
}

TEST_CASE("a checkpoint of another model, seed or batch is refused") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  for (const char* change : {"layers=3", "hidden=64", "heads=4", "ffn=100", "sequence=16"}) {
    const std::string key = std::string("model.") + change;
    require_refusal(run.train({"run.steps=8", key}, {"--resume"}),
                    2,
                    key.substr(0, key.find('=')) + ": must stay what it was when");
  }
  require_refusal(run.train({"run.steps=8", "model.tie_embeddings=false"}, {"--resume"}),
                  2,
                  "model.tie_embeddings: must stay what it was when");
  require_refusal(run.train({"model.layers=3",
                             "checkpoint.init_from=" + run.checkpoint(6),
                             "run.dir=" + run.path("third")}),
                  3,
                  "model.layers");
  require_refusal(run.train({"run.steps=8", "run.seed=5"}, {"--resume"}), 2, "run.seed");
  require_refusal(run.train({"run.steps=8", "batch.global=16"}, {"--resume"}), 2, "batch.global");
  require_refusal(
      run.train({"checkpoint.init_from=" + run.path("none"), "run.dir=" + run.path("other")}),
      3,
      "none");
}

TEST_CASE("a checkpoint of weights only starts a run and is refused as one to resume") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  REQUIRE(run_slackline({"export", "--checkpoint", run.checkpoint(6), "--out", run.path("hf")})
              .exit_code == 0);
  REQUIRE(
      run_slackline({"import", "--hf", run.path("hf"), "--out", run.path("weights")}).exit_code ==
      0);
  const std::string other = "run.dir=" + run.path("other");
  require_refusal(run.train({"checkpoint.resume_from=" + run.path("weights"), other}),
                  3,
                  "checkpoint.init_from");
  REQUIRE(run.train({"checkpoint.init_from=" + run.path("weights"), other}).exit_code == 0);
}

TEST_CASE("a run from another's checkpoint has to go further than that one") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string other = "run.dir=" + run.path("other");
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(6);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, std::vector<std::string>{"--resume"}}) {
    require_refusal(run.train({from, other, "run.steps=6"}, arguments),
                    2,
                    "run.steps: must be more than the 6 steps of checkpoint.resume_from");
    REQUIRE_FALSE(std::filesystem::exists(run.path("other")));
  }
  REQUIRE(run.train({from, other, "run.steps=7"}).exit_code == 0);
  // Its own checkpoint it may resume, though nothing is left to do.
  REQUIRE(run.train({from, other, "run.steps=7"}, {"--resume"}).exit_code == 0);
}

TEST_CASE("a checkpoint whose manifest is no file is refused at once") {
  const TrainingRun run;
  const std::string checkpoint = run.path("checkpoint");
  std::filesystem::create_directories(checkpoint);
  REQUIRE(::mkfifo((checkpoint + "/manifest.json").c_str(), 0600) == 0);
  require_refusal(run_slackline({"inspect", checkpoint}), 3, "is no regular file");
}

TEST_CASE("a full disk while saving is reported and leaves the older checkpoint loadable") {
  const TrainingRun run;
  REQUIRE(run.train({"run.save_every=3", "run.steps=3"}).exit_code == 0);
  const std::string weights = run.weights_sha256(run.checkpoint(3));
  // A limit on file sizes fails writes as a full disk does. 512-byte blocks: 20 kB.
  const ProcessResult full = run.train_in_shell(
      "trap '' XFSZ; ulimit -f 40;", {"run.steps=6", "run.save_every=6"}, "--resume");
  require_refusal(full, 3, "step-00000006");
  REQUIRE_FALSE(std::filesystem::exists(run.checkpoint(6)));
  REQUIRE(run.weights_sha256(run.checkpoint(3)) == weights);
  REQUIRE(run.train({"run.steps=6"}, {"--resume"}).exit_code == 0);
}

TEST_CASE("a loss that is not finite stops before the update with code 5, or is skipped") {
  const TrainingRun run;
  const std::vector<std::string> explode = {
      "optimizer.lr=1e30", "optimizer.clip_norm=0", "optimizer.warmup_steps=0"};
  require_refusal(run.train(explode), 5, "step 2");
  REQUIRE_THAT(read_file(run.run_dir() + "/metrics.jsonl"),
               Contains("\"loss\": null") && !Contains("skipped"));
  REQUIRE_FALSE(std::filesystem::exists(run.checkpoint(6)));

  std::vector<std::string> skip = explode;
  skip.emplace_back("run.on_nonfinite=skip");
  skip.emplace_back("run.dir=" + run.path("other"));
  const ProcessResult skipped = require_done(run.train(skip));
  REQUIRE_THAT(read_file(run.path("other") + "/metrics.jsonl"),
               Contains("\"skipped\": true") && Contains("\"loss\": null"));
}

}  // namespace slackline
