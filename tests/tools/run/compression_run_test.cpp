// Whole runs with compression: resumes and replays are the same run, state moves to other layouts,
// skipped steps leave none.

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;
using Json = nlohmann::json;

namespace {

const std::vector<std::string> kMesh = {"model.layers=4",
                                        "batch.micro=1",
                                        "optimizer.lr=1e-3",
                                        "parallel.pipeline=2",
                                        "parallel.data=2"};
const std::vector<std::string> kRanks = {"--ranks", "4"};

// A codec of each kind somewhere, with both ways of error feedback.
const std::vector<std::string> kCodecs = {
    "compress.policy=all",
    R"(compress.pipeline_backward={"codec": "low_rank", "rank": 2, "error_feedback": "lazy"})",
    R"(compress.pipeline_forward={"codec": "quantize", "bits": 8, "error_feedback": "immediate"})",
    R"(compress.data_gradient={"codec": "low_rank", "rank": 2, "error_feedback": "immediate"})",
    R"(compress.embedding={"codec": "top_k", "ratio": 0.2, "error_feedback": "immediate"})"};

const std::string kTwoShots = R"(compress.data_gradient={"codec": "quantize", "bits": 4,
    "sum": "two_shot", "error_feedback": "immediate"})";

std::vector<std::string> in(const TrainingRun& run, const std::string& name) {
  return {"run.dir=" + run.path(name)};
}

// A tensor of a checkpoint, of one worker.
std::vector<float> tensor_of(const std::string& path,
                             const std::string& name,
                             std::optional<std::int64_t> worker) {
  Checkpoint checkpoint(path);
  const Shape& shape = checkpoint.tensors().at(name).shape;
  std::vector<float> values(shape.num_elements());
  checkpoint.read(name, Tensor(std::span(values)).reshaped(shape), worker);
  return values;
}

}  // namespace

TEST_CASE("a compressed run that is resumed is the run that was not stopped, bit for bit") {
  const TrainingRun run;
  const std::vector<std::string> job = with(kMesh, kCodecs);
  require_done(run.train(with(job, {"run.steps=6"}), kRanks));
  require_done(
      run.train(with(with(job, in(run, "part")), {"run.steps=6", "run.save_every=3"}), kRanks));
  require_done(
      run.train(with(with(job, in(run, "rest")),
                     {"run.steps=6", "checkpoint.resume_from=" + run.checkpoint(3, "part")}),
                kRanks));
  REQUIRE(run.weights_sha256(run.checkpoint(6, "rest")) == run.weights_sha256(run.checkpoint(6)));
  const std::vector<double> whole = run.metric("loss");
  REQUIRE(run.metric("loss", "rest") == std::vector<double>(whole.begin() + 3, whole.end()));
}

TEST_CASE("a run that codes in units of moments is the run that was not stopped") {
  const TrainingRun run;
  const std::vector<std::string> job =
      with(kMesh,
           {"parallel.tensor=2",
            "run.steps=6",
            "compress.policy=all",
            R"(compress.data_gradient={"codec": "quantize", "bits": 2, "scale": "both",
               "units": "moments", "error_feedback": "immediate"})",
            R"(compress.embedding={"codec": "quantize", "bits": 4, "scale": "token",
               "units": "moments", "error_feedback": "immediate"})"});
  const std::vector<std::string> ranks = {"--ranks", "8"};
  require_done(run.train(with(job, {"run.save_every=3"}), ranks));
  require_done(run.train(
      with(with(job, in(run, "rest")), {"checkpoint.resume_from=" + run.checkpoint(3)}), ranks));
  REQUIRE(run.weights_sha256(run.checkpoint(6, "rest")) == run.weights_sha256(run.checkpoint(6)));
  const std::vector<double> whole = run.metric("loss");
  REQUIRE(run.metric("loss", "rest") == std::vector<double>(whole.begin() + 3, whole.end()));
}

TEST_CASE("a run that adds up in two shots is the run that was not stopped when it is resumed") {
  const TrainingRun run;
  const std::vector<std::string> job = {"model.layers=2",
                                        "batch.micro=1",
                                        "optimizer.lr=1e-3",
                                        "parallel.data=4",
                                        "compress.policy=all",
                                        kTwoShots,
                                        "run.steps=6",
                                        "run.save_every=3"};
  require_done(run.train(job, kRanks));
  require_done(run.train(
      with(with(job, in(run, "rest")), {"checkpoint.resume_from=" + run.checkpoint(3)}), kRanks));
  REQUIRE(run.weights_sha256(run.checkpoint(6, "rest")) == run.weights_sha256(run.checkpoint(6)));
  const std::vector<double> whole = run.metric("loss");
  REQUIRE(run.metric("loss", "rest") == std::vector<double>(whole.begin() + 3, whole.end()));
}

TEST_CASE("a run that codes sums of passes is the run that was not stopped when it is resumed") {
  const TrainingRun run;
  for (const std::string codec :
       {R"({"codec": "quantize", "bits": 4, "error_feedback": "immediate"})",
        R"({"codec": "low_rank", "rank": 2, "error_feedback": "immediate"})"}) {
    for (const std::string strategy : {"zero2", "IGG", "NIG"}) {
      INFO(codec << ", " << strategy);
      const std::string name = strategy + codec.substr(11, 5);
      const std::vector<std::string> job = {"model.layers=2",
                                            "batch.micro=1",
                                            "optimizer.lr=1e-3",
                                            "parallel.data=4",
                                            "parallel.group=2",
                                            "parallel.data_strategy=" + strategy,
                                            "compress.policy=all",
                                            "compress.data_gradient=" + codec,
                                            "run.steps=4",
                                            "run.save_every=2"};
      require_done(run.train(with(job, in(run, name)), kRanks));
      require_done(run.train(with(with(job, in(run, name + "-rest")),
                                  {"checkpoint.resume_from=" + run.checkpoint(2, name)}),
                             kRanks));
      REQUIRE(run.weights_sha256(run.checkpoint(4, name + "-rest")) ==
              run.weights_sha256(run.checkpoint(4, name)));
      const std::vector<double> whole = run.metric("loss", name);
      REQUIRE(run.metric("loss", name + "-rest") ==
              std::vector<double>(whole.begin() + 2, whole.end()));
    }
  }
}

// Of 257 rows the last of four tensor ranks has 65 and the others 64, which bounds the rank of
// their factors.
TEST_CASE("a run whose tensor ranks have factors of unlike ranks saves them and goes on") {
  const auto [tied, site, weight] = GENERATE(table<std::string, std::string, std::string>(
      {{"true", "embedding", "wte.weight"}, {"false", "data_gradient", "lm_head.weight"}}));
  INFO(site);
  const TrainingRun run;
  const std::vector<std::string> job = {
      "model.layers=1",
      "model.hidden=128",
      "model.heads=4",
      "model.ffn=128",
      "model.tie_embeddings=" + tied,
      "optimizer.lr=1e-3",
      "parallel.data=2",
      "compress.policy=all",
      "compress." + site +
          R"(={"codec": "low_rank", "rank": 128, "always": true, "error_feedback": "immediate"})",
      "run.steps=4",
      "run.save_every=2"};
  const std::vector<std::string> four = with(job, {"parallel.tensor=4"});
  require_done(run.train(four, {"--ranks", "8"}));
  const std::string factor = "residual/" + site + "/" + weight;
  const Checkpoint saved(run.checkpoint(2));
  CHECK(saved.tensors().at(factor + "/0-4.right_factor").shape == Shape{64, 128});
  CHECK(saved.tensors().at(factor + "/3-4.right_factor").shape == Shape{65, 128});

  const std::string from = "checkpoint.resume_from=" + run.checkpoint(2);
  const ProcessResult rest =
      require_done(run.train(with(with(four, in(run, "rest")), {from}), {"--ranks", "8"}));
  CHECK_THAT(rest.error, !Contains("begins anew"));
  CHECK(run.weights_sha256(run.checkpoint(4, "rest")) == run.weights_sha256(run.checkpoint(4)));

  // Two ranks have 128 rows and 129, and the columns bound both.
  const ProcessResult moved = require_done(
      run.train(with(with(job, in(run, "moved")), {"parallel.tensor=2", from}), {"--ranks", "4"}));
  CHECK_THAT(moved.error, Contains("begins anew") && Contains(factor + "/3-4.right_factor"));
  CHECK(Checkpoint(run.checkpoint(4, "moved")).tensors().at(factor + ".right_factor").shape ==
        Shape{2, 128, 128});
}

TEST_CASE("a compressed run's plan.json replays to the same run") {
  const TrainingRun run;
  require_done(run.train(with(kMesh, with(kCodecs, {"compress.warmup_steps=2"})), kRanks));
  require_done(
      run.train(with(with(kMesh, in(run, "again")),
                     {"compress.policy=replay", "compress.plan=" + run.run_dir() + "/plan.json"}),
                kRanks));
  REQUIRE(run.metric("loss", "again") == run.metric("loss"));
  REQUIRE(run.weights_sha256(run.checkpoint(6, "again")) == run.weights_sha256(run.checkpoint(6)));
}

TEST_CASE("a run measures its codecs, for its cost file and its plan") {
  const TrainingRun run;
  require_done(run.train(with(with(kMesh, kCodecs), {"run.steps=7"}), kRanks));
  const Json costs = Json::parse(read_file(run.run_dir() + "/costs.json"));
  REQUIRE(costs["codecs"].size() >= 3);
  for (const Json& row : costs["codecs"]) {
    INFO(row);
    CHECK(row["encode_seconds"] > 0.0);
    CHECK(row["decode_seconds"] > 0.0);
    CHECK(row["sent_bytes"] > 0);
  }
  const Json plans = Json::parse(read_file(run.run_dir() + "/plan.json"));
  for (const Json& row : plans.back()["classes"]) {
    INFO(row);
    CHECK(row["codec"].is_null() == row["encode_seconds"].is_null());
    CHECK(row["codec"].is_null() == row["decode_seconds"].is_null());
  }
}

TEST_CASE("what has no place on another layout is named when it begins anew") {
  const TrainingRun run;
  const std::vector<std::string> job = with(kMesh, kCodecs);
  require_done(run.train(with(job, {"run.steps=3"}), kRanks));
  const ProcessResult moved =
      require_done(run.train(with(with(job, in(run, "moved")),
                                  {"run.steps=4",
                                   "parallel.pipeline=1",
                                   "parallel.data=4",
                                   "optimizer.lr=0",
                                   "compress.policy=list",
                                   R"(compress.classes=[{"site": "data_gradient"}])",
                                   "compress.pipeline_forward=null",
                                   "compress.pipeline_backward=null",
                                   "compress.embedding=null",
                                   "checkpoint.resume_from=" + run.checkpoint(3)}),
                             {"--ranks", "4"}));
  // Stages are gone, and with them what their messages owed; the table is not compressed here.
  REQUIRE_THAT(moved.error, Contains("begins anew"));
  REQUIRE_THAT(moved.error, Contains("residual/pipeline_backward/2"));
  REQUIRE_THAT(moved.error, Contains("residual/embedding/wte.weight"));
  REQUIRE_THAT(moved.error, !Contains("residual/data_gradient/h.0.attn.c_attn.weight,"));
}

// A step that is not finite is skipped and leaves codecs as they were loaded, which shows what that
// was.
TEST_CASE("what other numbers of data ranks owed is added up and shared out equally") {
  struct Change {
    std::string gradients{};
    int before = 0;  // data ranks
    int after = 0;
  };

  const Change change =
      GENERATE(Change{kCodecs[3], 2, 4}, Change{kTwoShots, 4, 2}, Change{kTwoShots, 2, 4});
  INFO(change.gradients << ", " << change.before << " to " << change.after);
  const TrainingRun run;
  const std::vector<std::string> job = {"model.layers=4",
                                        "batch.micro=1",
                                        "optimizer.lr=1e30",
                                        "optimizer.schedule=constant",
                                        "optimizer.clip_norm=0",
                                        "optimizer.warmup_steps=0",
                                        "run.on_nonfinite=skip",
                                        "compress.policy=all",
                                        change.gradients};
  const auto on_ranks = [&](int ranks, const std::vector<std::string>& more) {
    const std::string count = std::to_string(ranks);
    require_done(run.train(with(with(job, more), {"parallel.data=" + count}), {"--ranks", count}));
  };
  on_ranks(change.before, {"run.steps=1"});
  on_ranks(change.after,
           {"run.dir=" + run.path("other"),
            "run.steps=2",
            "checkpoint.resume_from=" + run.checkpoint(1)});
  for (const char* name : {"residual/data_gradient/h.0.attn.c_attn.weight",
                           "residual/data_gradient/h.3.mlp.c_proj.weight"}) {
    INFO(name);
    std::vector<float> share = tensor_of(run.checkpoint(1), name, 0);
    for (std::int64_t worker = 1; worker < change.before; ++worker) {
      const std::vector<float> owed = tensor_of(run.checkpoint(1), name, worker);
      std::ranges::transform(share, owed, share.begin(), std::plus<>());
    }
    for (float& value : share) {
      value /= static_cast<float>(change.after);
    }
    REQUIRE(share != std::vector<float>(share.size(), 0.0F));
    for (std::int64_t worker = 0; worker < change.after; ++worker) {
      REQUIRE(tensor_of(run.checkpoint(2, "other"), name, worker) == share);
    }
  }
}

// A step that is not finite leaves what was loaded, as above.
TEST_CASE("what a boundary owes stays behind its layer, whatever stage sends there") {
  const TrainingRun run;
  const std::vector<std::string> job = with({"model.layers=4",
                                             "batch.micro=1",
                                             "optimizer.lr=1e30",
                                             "optimizer.schedule=constant",
                                             "optimizer.clip_norm=0",
                                             "optimizer.warmup_steps=0",
                                             "run.on_nonfinite=skip"},
                                            {"compress.policy=all", kCodecs[1], kCodecs[2]});
  const auto stages = [](const char* count, const char* layers) {
    return std::vector<std::string>{std::string("parallel.pipeline=") + count,
                                    std::string("parallel.stage_layers=") + layers};
  };
  const auto resumed = [&](const std::string& name,
                           const std::string& from,
                           const std::vector<std::string>& layout,
                           const char* ranks) {
    return require_done(run.train(with(with(job, layout),
                                       {"run.steps=2",
                                        "run.dir=" + run.path(name),
                                        "checkpoint.resume_from=" + run.checkpoint(1, from)}),
                                  {"--ranks", ranks}))
        .error;
  };
  const auto state = [&](const std::string& checkpoint, int layers, const char* more) {
    return tensor_of(checkpoint, "residual/pipeline_backward/" + std::to_string(layers) + more, 0);
  };

  require_done(run.train(with(with(job, stages("2", "[1,3]")), {"run.steps=1"}), {"--ranks", "2"}));
  const std::string log = resumed("turned", "run", stages("2", "[3,1]"), "2");
  for (const char* name : {"residual/pipeline_backward/1", "residual/pipeline_forward/1/0"}) {
    CHECK_THAT(log, Contains("begins anew") && Contains(name));
  }
  const std::vector<float> owed = state(run.checkpoint(1), 1, "");
  CHECK(owed != std::vector<float>(owed.size(), 0.0F));
  CHECK(state(run.checkpoint(2, "turned"), 3, "") == std::vector<float>(owed.size(), 0.0F));
  CHECK_THAT(resumed("same", "run", stages("2", "[1,3]"), "2"), !Contains("begins anew"));
  CHECK(state(run.checkpoint(2, "same"), 1, "") == owed);

  // The boundary behind two layers is stage 1's of two and stage 2's of four.
  require_done(run.train(
      with(with(job, stages("2", "[2,2]")), {"run.steps=1", "run.dir=" + run.path("two")}),
      {"--ranks", "2"}));
  const std::vector<std::string> chunks = {"parallel.pipeline=2",
                                           "parallel.schedule=interleaved",
                                           "parallel.chunks=2",
                                           "parallel.stage_layers=[1,1,1,1]"};
  for (const bool interleaved : {false, true}) {
    const std::string name = interleaved ? "chunks" : "four";
    CHECK_THAT(
        resumed(
            name, "two", interleaved ? chunks : stages("4", "[1,1,1,1]"), interleaved ? "2" : "4"),
        !Contains("begins anew"));
    const std::string moved = run.checkpoint(2, name);
    for (const char* more : {"", ".right_factor"}) {
      CHECK(state(moved, 2, more) == state(run.checkpoint(1, "two"), 2, more));
    }
    for (const int layers : {1, 3}) {
      CHECK(state(moved, layers, "") == std::vector<float>(owed.size(), 0.0F));
    }
  }
}

TEST_CASE("what older checkpoints name by the number of a stage begins anew") {
  const TrainingRun run;
  const std::vector<std::string> job = with(kMesh, kCodecs);
  require_done(run.train(with(job, {"run.steps=3"}), kRanks));
  const std::string path = run.checkpoint(3) + "/manifest.json";
  Json older = Json::parse(read_file(path));
  older.erase("updates");  // what tells them apart
  older.erase("xxh3");
  write_file_atomically(path, older.dump());
  const ProcessResult rest =
      require_done(run.train(with(job, {"run.steps=4"}), with(kRanks, {"--resume"})));
  REQUIRE_THAT(
      rest.error,
      Contains("begins anew") && Contains("residual/pipeline_backward/2 (a stage's number)"));
  REQUIRE_THAT(rest.error, !Contains("residual/data_gradient"));
}

TEST_CASE("steps that are skipped leave no trace in codecs") {
  const TrainingRun run;
  // The learning rate makes every step after the first one not finite.
  const std::vector<std::string> job = with(with(kMesh, kCodecs),
                                            {"run.steps=1",
                                             "optimizer.lr=1e30",
                                             "optimizer.clip_norm=0",
                                             "optimizer.warmup_steps=0",
                                             "run.on_nonfinite=skip"});
  require_done(run.train(job, kRanks));
  require_done(run.train(with(with(job, in(run, "more")), {"run.steps=4"}), kRanks));
  for (const char* name : {"residual/data_gradient/h.0.mlp.c_fc.weight",
                           "residual/pipeline_backward/2",
                           "residual/pipeline_backward/2.right_factor"}) {
    INFO(name);
    REQUIRE(tensor_of(run.checkpoint(4, "more"), name, 1) == tensor_of(run.checkpoint(1), name, 1));
  }
}

TEST_CASE("evaluations leave no trace in codecs") {
  const TrainingRun run;
  // Right factors change with every message that is encoded, an evaluation's too.
  const std::vector<std::string> job =
      with(kMesh,
           {"compress.policy=all",
            R"(compress.pipeline_forward={"codec": "low_rank", "rank": 2})",
            "model.dropout=0"});
  require_done(run.train(with(job, {"run.eval_every=0"}), kRanks));
  require_done(run.train(with(with(job, in(run, "evaluated")), {"run.eval_every=1"}), kRanks));
  REQUIRE(run.metric("eval_loss", "evaluated").size() == 6);
  REQUIRE(run.metric("loss", "evaluated") == run.metric("loss"));
  REQUIRE(run.weights_sha256(run.checkpoint(6, "evaluated")) ==
          run.weights_sha256(run.checkpoint(6)));
}

TEST_CASE("raw and sent bytes of a compressed step are in the metrics") {
  const TrainingRun run;
  require_done(run.train(with(kMesh, {}), kRanks));
  require_done(run.train(with(with(kMesh, kCodecs), in(run, "small")), kRanks));
  const auto axes = [&](const std::string& name) {
    const std::string text = read_file(run.path(name) + "/metrics.jsonl");
    return text.substr(text.find("\"axes\""), text.find('\n') - text.find("\"axes\""));
  };
  const auto number = [](const std::string& text, const std::string& axis, const char* field) {
    const std::size_t at = text.find(field, text.find("\"" + axis + "\""));
    return std::stod(text.substr(text.find(':', at) + 1));
  };
  const std::string plain = axes("run");
  const std::string compressed = axes("small");
  for (const std::string axis : {"pipeline", "data", "embedding"}) {
    INFO(axis);
    REQUIRE(number(plain, axis, "raw_bytes") == number(plain, axis, "sent_bytes"));
    REQUIRE(number(compressed, axis, "raw_bytes") == number(plain, axis, "raw_bytes"));
    REQUIRE(number(compressed, axis, "sent_bytes") < number(plain, axis, "sent_bytes"));
  }
}

}  // namespace slackline
