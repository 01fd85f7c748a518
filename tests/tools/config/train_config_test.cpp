#include "tools/config/train_config.h"

#include <filesystem>
#include <string>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"
#include "tests/tools/run/smallest_config.h"

namespace slackline {

namespace {

const std::string kSource = SL_SOURCE_DIR;

// Reads the smallest config with some keys changed.
TrainConfig read_with(const std::vector<std::string>& assignments) {
  JsonReader document = JsonReader::parse(kSmallestConfig, "test.json");
  for (const std::string& assignment : assignments) {
    document.set(assignment);
  }
  return read_train_config(document);
}

// Returns what the ConfigError of a changed key says.
std::string refusal(const std::vector<std::string>& assignments) {
  return testing::refusal_of<ConfigError>([&] { return read_with(assignments); });
}

struct Refusal {
  std::vector<std::string> assignments;
  std::string path;
  std::string rule;
};

void require_refusals(const std::vector<Refusal>& cases) {
  for (const Refusal& expected : cases) {
    INFO(expected.assignments.front());
    REQUIRE_THAT(refusal(expected.assignments),
                 Catch::StartsWith(expected.path) && Catch::Contains(expected.rule));
  }
}

}  // namespace

TEST_CASE("defaults fill everything but what is required") {
  const TrainConfig config = read_with({});
  REQUIRE(config.run.seed == 1234);
  REQUIRE(config.run.log_every == 1);
  REQUIRE(config.run.keep == 2);
  REQUIRE(config.precision == DType::f32);
  REQUIRE(config.model.ffn == 256);
  REQUIRE(config.model.tie_embeddings);
  REQUIRE(config.batch.micro == 8);
  REQUIRE(config.optimizer.beta2 == 0.95);
  REQUIRE(config.compress.policy == CompressionPolicy::none);
  REQUIRE(config.data.split == kWholeFiles);
  REQUIRE(read_with({"run.eval_every=5"}).data.split == kSplitForEvaluation);
  for (const char* key : {"run.dir",
                          "run.steps",
                          "model.layers",
                          "model.hidden",
                          "model.heads",
                          "model.sequence",
                          "model.vocab",
                          "batch.global"}) {
    REQUIRE(refusal({std::string(key) + "=null"}) ==
            std::string(key) + ": required key is missing");
  }
  REQUIRE_THAT(refusal({"data.train=null"}),
               Catch::StartsWith("data.train: must list at least one data set"));
}

TEST_CASE("example configs are valid, and configs/README.md names each") {
  const std::string readme = read_file(kSource + "/configs/README.md");
  std::size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource + "/configs")) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".json" || name == "schema.json") {
      continue;
    }
    INFO(name);
    if (!name.starts_with("sweep_")) {  // of sweeps: sweep_test.cpp
      JsonReader document = JsonReader::parse_file(entry.path());
      REQUIRE_NOTHROW(read_train_config(document));
    }
    REQUIRE(readme.find("`" + name + "`") != std::string::npos);
    ++examples;
  }
  REQUIRE(examples >= 8);
}

TEST_CASE("the resolved config reads back to itself") {
  JsonReader document = JsonReader::parse(kSmallestConfig, "test.json");
  static_cast<void>(read_train_config(document));
  JsonReader again = JsonReader::parse(document.resolved(), "resolved");
  static_cast<void>(read_train_config(again));
  REQUIRE(again.resolved() == document.resolved());
}

TEST_CASE("bad values are refused with path, rule and value") {
  REQUIRE(refusal({"model.hiden=3"}) == "model.hiden: unknown key; nearest is model.hidden; got 3");
  REQUIRE(refusal({"model.layers=two"}) == "model.layers: expected an integer; got \"two\"");
  REQUIRE(refusal({"model.layers=0"}) == "model.layers: must be at least 1; got 0");
  REQUIRE(refusal({"model.heads=5"}) ==
          "model.heads: must divide model.hidden = 64; nearest is 4; got 5");
  REQUIRE(refusal({"batch.micro=3"}) ==
          "batch.micro: must divide batch.global = 8; nearest is 2; got 3");
  REQUIRE(refusal({"optimizer.schedule=cosin"}) ==
          "optimizer.schedule: must be one of constant, linear, cosine, wsd; nearest is "
          "\"cosine\"; got \"cosin\"");
  REQUIRE(refusal({"data.split=[0, 0, 0]"}) ==
          "data.split: must have a share above 0; got [0,0,0]");
  REQUIRE(refusal({"checkpoint.init_from=a", "checkpoint.resume_from=b"}) ==
          "checkpoint.resume_from: and checkpoint.init_from exclude each other; keep one; got "
          "\"b\"");
}

TEST_CASE("the parallel section is read whole") {
  const ParallelConfig plain = read_with({}).parallel;
  REQUIRE(plain.num_ranks() == 1);
  REQUIRE(plain.schedule == ScheduleName::one_f_one_b);
  REQUIRE(plain.data_strategy == DataStrategy::replicate);
  REQUIRE(plain.transfers == schedule::Transfers::asynchronous);
  REQUIRE(plain.embedding_sync == EmbeddingSync::fused);
  REQUIRE_FALSE(plain.sequence_parallel);

  const TrainConfig config = read_with({"model.layers=6",
                                        "batch.micro=1",
                                        "parallel.tensor=4",
                                        "parallel.pipeline=2",
                                        "parallel.data=2",
                                        "parallel.schedule=interleaved",
                                        "parallel.chunks=2",
                                        "parallel.stage_layers=[2, 1, 2, 1]",
                                        "parallel.sequence_parallel=true",
                                        "parallel.data_strategy=zero1",
                                        "parallel.transfers=blocking",
                                        "parallel.embedding_sync=separate"});
  const ParallelConfig& mesh = config.parallel;
  REQUIRE(mesh.num_ranks() == 16);
  REQUIRE(mesh.num_virtual_stages() == 4);
  REQUIRE(mesh.schedule == ScheduleName::interleaved);
  REQUIRE(mesh.stage_layers == std::vector<int>{2, 1, 2, 1});
  REQUIRE(mesh.sequence_parallel);
  REQUIRE(mesh.data_strategy == DataStrategy::zero1);
  REQUIRE(mesh.transfers == schedule::Transfers::blocking);
  REQUIRE(mesh.embedding_sync == EmbeddingSync::separate);
  REQUIRE(config.num_micro_batches() == 4);
}

TEST_CASE("a micro-batch is a data rank's whole share unless given") {
  REQUIRE(read_with({"parallel.data=4"}).batch.micro == 2);
  REQUIRE(read_with({"parallel.data=4", "batch.micro=1"}).num_micro_batches() == 2);
}

TEST_CASE("sizes that no machine holds are refused before they are multiplied") {
  using Catch::Contains;
  CHECK_THAT(refusal({"model.hidden=16777216", "model.layers=65536"}),
             Contains("model.hidden: makes") && Contains("parameters"));
  CHECK_THAT(refusal({"model.layers=1",
                      "model.hidden=16777216",
                      "model.heads=1",
                      "model.sequence=1024",
                      "batch.global=1073741824"}),
             Contains("model.sequence: makes") && Contains("activations"));
}

TEST_CASE("heads that are wider than a device's kernels take are refused on a device alone") {
  const std::vector<std::string> wide = {"model.hidden=1024", "model.heads=2"};
  CHECK(read_with(wide).model.heads == 2);
  std::vector<std::string> on_device = wide;
  on_device.emplace_back("device=cuda");
  CHECK_THAT(refusal(on_device),
             Catch::StartsWith("model.heads: must leave at most 256 columns a head") &&
                 Catch::Contains("nearest is 4"));
}

TEST_CASE("a micro-batch that is left open stands for the smallest that the layout takes") {
  const auto with = [](const std::string& sequence, const std::string& global) {
    return std::vector<std::string>{"batch.micro=null",
                                    "batch.global=" + global,
                                    "model.sequence=" + sequence,
                                    "parallel.tensor=2",
                                    "parallel.data=2",
                                    "parallel.sequence_parallel=true",
                                    "parallel.data_strategy=auto"};
  };
  CHECK(read_with(with("32", "8")).batch.micro == 1);
  CHECK(read_with(with("33", "8")).batch.micro == 2);
  CHECK(read_with(with("33", "12")).batch.micro == 2);
  CHECK_THAT(refusal(with("33", "6")),
             Catch::StartsWith("parallel.sequence_parallel: batch.micro x model.sequence = 99"));
}

TEST_CASE("what is decided later stays open in the resolved config") {
  const auto resolved = [](const std::vector<std::string>& assignments) {
    JsonReader document = JsonReader::parse(kSmallestConfig, "test.json");
    for (const std::string& assignment : assignments) {
      document.set(assignment);
    }
    static_cast<void>(read_train_config(document));
    return document.resolved();
  };
  const auto has = [](const std::string& key) { return Catch::Contains("\"" + key + "\":"); };
  CHECK_THAT(resolved({}), has("micro") && has("decay_embeddings") && has("split"));
  CHECK_THAT(resolved({"parallel.data=2", "parallel.data_strategy=auto"}), !has("micro"));
  CHECK_THAT(resolved({"parallel.data=2", "parallel.data_strategy=auto", "batch.micro=2"}),
             has("micro"));
  CHECK_THAT(resolved({"checkpoint.resume_from=x"}), !has("decay_embeddings") && !has("split"));
  // Keys of rounds that wait for a method, each of which has defaults of its own.
  CHECK_THAT(resolved({R"(outer={"period": 5})"}),
             has("period") && !has("momentum") && !has("delay") && !has("eager"));
  CHECK_THAT(resolved({"checkpoint.resume_from=x", "data.split=[0.9, 0.1, 0]"}), has("split"));
}

TEST_CASE("more passes than a schedule lists are refused, and the nearest micro-batch is found") {
  require_refusals({
      {{"run.steps=1", "batch.global=1073741824", "batch.micro=1"},
       "batch.micro",
       "micro-batches times stages must be at most 1048576"},
      {{"run.steps=1", "batch.global=1073741789", "batch.micro=1073741788"},
       "batch.micro",
       "nearest is 1; got 1073741788"},
      {{"batch.global=12", "batch.micro=5"}, "batch.micro", "nearest is 4"},
  });
}

TEST_CASE("meshes that do not fit the model are refused with path and rule") {
  require_refusals({
      {{"parallel.tensor=0"}, "parallel.tensor", "must be at least 1; got 0"},
      {{"parallel.tensor=3"},
       "parallel.tensor",
       "model.heads = 4 and model.ffn = 256; nearest is 2"},
      {{"parallel.tensor=4", "model.vocab=3"}, "parallel.tensor", "model.vocab = 3"},
      {{"parallel.pipeline=4"}, "parallel.pipeline", "4 stages, and the model has 2 layers"},
      {{"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2"},
       "parallel.pipeline",
       "parallel.pipeline x parallel.chunks = 4 stages"},
      {{"parallel.pipeline=2", "parallel.stage_layers=[2]"},
       "parallel.stage_layers",
       "each of 2 stages, adding up to model.layers = 2"},
      {{"parallel.pipeline=2", "parallel.stage_layers=[1, 2]"},
       "parallel.stage_layers",
       "adding up to model.layers = 2"},
      {{"parallel.pipeline=2", "parallel.stage_layers=[2, 0]"},
       "parallel.stage_layers.1",
       "must be at least 1; got 0"},
      {{"parallel.schedule=zb_h1", "model.recompute=block"},
       "parallel.schedule",
       "model.recompute"},
  });
}

TEST_CASE("patterns of what is trained that name nothing are refused") {
  require_refusals({
      {{R"(model.trainable=["h.0.*", "h.7.*"])"},
       "model.trainable",
       "'h.7.*' matches no parameter; names are like wte.weight"},
      {{R"(model.trainable=["lm_head.weight"])"}, "model.trainable", "matches no parameter"},
      {{R"(model.trainable="*")"}, "model.trainable", "list"},
  });
}

TEST_CASE("patterns that take too long to find are refused, patterns of large models are not") {
  require_refusals({
      {{"model.layers=65536", R"(model.trainable=["*a*e*t*x"])"}, "model.trainable", "use fewer"},
      {{R"(model.trainable=["*?*?*?*?*?*?*?*x"])"}, "model.trainable", "use fewer"},
      {{"model.layers=65536", R"(model.trainable=["[)" + std::string(9000, '0') + "\"]"},
       "model.trainable",
       "use fewer"},
  });
  CHECK(refusal(
            {"model.layers=120",
             R"(model.trainable=["h.*.attn.c_*.weight", "*ln_?.*", "h.11[0-9].*", "w[tp]e.*"])"}) ==
        "accepted");
}

TEST_CASE("meshes that do not fit the batch are refused with path and rule") {
  require_refusals({
      {{"parallel.sequence_parallel=true",
        "parallel.tensor=4",
        "model.sequence=31",
        "batch.micro=1"},
       "parallel.sequence_parallel",
       "31 tokens must divide over parallel.tensor = 4"},
      {{"parallel.pipeline=2", "parallel.schedule=interleaved"},
       "parallel.schedule",
       "a multiple of parallel.pipeline = 2"},
      {{"parallel.data=3"}, "batch.global", "a multiple of parallel.data = 3; nearest is 6"},
      {{"parallel.data=2", "batch.micro=3"},
       "batch.micro",
       "batch.global / parallel.data = 4; nearest is 2"},
  });
}

TEST_CASE("settings of the mesh that do not exist or do nothing are refused") {
  require_refusals({
      {{"parallel.schedule=1f1b2"}, "parallel.schedule", "zb_h1"},
      {{"parallel.chunks=2"}, "parallel.chunks", "interleaved"},
      {{"parallel.schedule=interleaved"}, "parallel.schedule", "parallel.pipeline above 1"},
      {{"parallel.data_strategy=zero4"}, "parallel.data_strategy", "zero1"},
      {{"parallel.data_strategy=GGN"}, "parallel.data_strategy", "zero3"},
      {{"parallel.transfers=blockin"}, "parallel.transfers", "blocking"},
      {{"parallel.embedding_sync=both"}, "parallel.embedding_sync", "separate"},
      {{"parallel.sequence_parallel=1"}, "parallel.sequence_parallel", "true or false"},
      {{"network.timeout_seconds=0"}, "network.timeout_seconds", "must be at least 1; got 0"},
      {{"run.cuda_graphs=true"}, "run.cuda_graphs", R"(where device is not "cuda")"},
      {{"run.stream_waits=true"}, "run.stream_waits", R"(where device is not "cuda")"},
      {{"network.transport=ncl"}, "network.transport", "nccl"},
      {{"network.transport=host"}, "network.transport", R"(where device is not "cuda")"},
      {{"network.transport=nccl", "device=rehearsal"}, "network.transport", "leave it out"},
      {{"network.transport=nccl", "network.links=x.json"},
       "network.transport",
       "links are emulated"},
      {{"network.collectives=flat"}, "network.collectives", "hierarchical"},
      {{"network.collectives=hierarchical"}, "network.collectives", "parallel.data = 1"},
      {{"network.collectives=hierarchical", "parallel.data=2", "parallel.group=2"},
       "network.collectives",
       "in groups of 2"},
      {{"network.collectives=hierarchical", "parallel.data=2", "parallel.group=1"},
       "network.collectives",
       "in groups of 1"},
  });
}

TEST_CASE("outer rounds say what they do not fit") {
  const auto with = [](const std::string& outer, const std::string& other = "parallel.data=4") {
    return std::vector<std::string>{"outer=" + outer, "parallel.data=4", "parallel.group=2", other};
  };
  require_refusals({
      {with(R"({"method": "coo"})"), "outer.method", "co2"},
      {{R"(outer={"method": "co2"})"}, "outer.method", "needs two groups"},
      {{R"(outer={"method": "co2"})", "parallel.data=4", "parallel.group=4"},
       "outer.method",
       "nearest is parallel.data = 8"},
      {with(R"({"method": "slowmo", "delay": 1})"), "outer.delay", "use \"co2\""},
      {with(R"({"method": "diloco", "period": "auto"})"), "outer.period", "nearest is 12"},
      {with(R"({"method": "co2", "period": 0})"), "outer.period", "at least 1"},
      {with(R"({"method": "co2", "momentum": 1})"), "outer.momentum", "below 1"},
      {with(R"({"method": "slowmo", "nesterov": true})"), "outer.nesterov", "slowmo"},
      {with(R"({"method": "co2", "lead": 0.5})"), "outer.lead", "outer.eager true"},
      {with(R"({"method": "co2", "eager": true, "lead": 1.5})"), "outer.lead", "at most 1"},
      {with(R"({"method": "slowmo", "penalty": "gap"})"), "outer.penalty", "co2"},
      {with(R"({"method": "co2", "penalty": 0})"), "outer.penalty", "greater than 0"},
      {with(R"({"method": "co2", "penalty": "gab"})"), "outer.penalty", "gap"},
      {with(R"({"method": "co2", "reach": "measured"})"), "outer.reach", "needs outer.penalty"},
      {with(R"({"method": "diloco", "clip": 1})"), "outer.clip", "co2"},
      {with(R"({"method": "co2", "clip_kind": "norm"})"), "outer.clip_kind", "needs outer.clip"},
      {with(R"({"method": "co2", "delay": 0, "eager": true})"), "outer.eager", "outer.delay 1"},
      {with(R"({"method": "slowmo", "ending": "mean"})"), "outer.ending", "outer.delay 1"},
      {with(R"({"method": "co2", "period": 4, "fragments": 2})"), "outer.fragments", "diloco"},
      {with(R"({"method": "diloco", "delay": 1, "fragments": 2})"), "outer.fragments", "delay 0"},
      {with(R"({"method": "diloco", "period": 12, "fragments": 8})"),
       "outer.fragments",
       "nearest is 4"},
      {with(R"({"method": "diloco", "period": 64, "fragments": 64})"),
       "outer.fragments",
       "leaves a fragment empty"},
      {with(R"({"method": "diloco", "mix": 0.5})"), "outer.mix", "needs outer.fragments"},
      {with(R"({"method": "diloco", "fragments": 2, "mix": 1})"), "outer.mix", "below 1"},
      {{R"(compress={"policy": "all", "outer": {"codec": "cast"}})"},
       "compress.outer",
       "outer.method is not set"},
      {with(R"({"method": "co2"})", "network.collectives=hierarchical"),
       "outer.method",
       "network.collectives"},
      {with(R"({"method": "co2"})", "compress.policy=critical_path"),
       "outer.method",
       "compress.policy"},
  });
  CHECK_FALSE(
      read_with({R"(outer={"method": "none", "nesterov": true, "lr": 0.7})"}).outer.is_on());
  CHECK_FALSE(read_with({R"(outer={"method": "none", "period": 12, "fragments": 3, "mix": 0.2})"})
                  .outer.is_on());
  CHECK_FALSE(read_with({"outer.lr=0.5"}).outer.is_on());
  CHECK(refusal({"outer.rate=0.5"}) != "accepted");
  const TrainConfig config = read_with(with(R"({"method": "co2", "penalty": 1.5})"));
  CHECK(config.outer.penalty_value == 1.5);
  CHECK_FALSE(config.outer.period.has_value());
  CHECK(config.mesh_job().parallel.data == 2);
  CHECK(config.parallel.num_workers() == 2);
  CHECK(config.mesh_job().global_batch() == config.batch.global / 2);
  // Eager rounds have defaults of their own, which are stable and give way to what is said.
  const OuterConfig eager = read_with(with(R"({"method": "co2", "eager": true})")).outer;
  CHECK(eager.nesterov);
  CHECK(eager.momentum == 0.85);
  CHECK(eager.lr < largest_stable_rate(eager));
  const OuterConfig said =
      read_with(with(R"({"method": "co2", "eager": true, "lr": 0.5, "nesterov": false})")).outer;
  CHECK(said.lr == 0.5);
  CHECK_FALSE(said.nesterov);
}

TEST_CASE("codecs are refused on a table that a data strategy takes apart") {
  const auto with = [](const std::string& strategy, const std::string& setting) {
    return std::vector<std::string>{"parallel.data=2",
                                    "parallel.data_strategy=" + strategy,
                                    "compress.policy=all",
                                    "compress." + setting};
  };
  const std::string cast = R"({"codec": "cast"})";
  CHECK(refusal(with("zero2", "data_gradient=" + cast)) == "accepted");
  CHECK(refusal(with("NIG", "embedding=" + cast)) == "accepted");
  CHECK(refusal(with("zero3", "policy=optimus_cc")) == "accepted");
  CHECK(refusal({"parallel.data=2",
                 "parallel.data_strategy=zero3",
                 "compress.policy=critical_path",
                 "compress.data_gradient=" + cast}) == "accepted");
  require_refusals({
      {with("zero2", "embedding=" + cast), "compress.embedding", "zero1"},
      {{"parallel.data=2",
        "parallel.pipeline=2",
        "parallel.data_strategy=GNG",
        "compress.policy=all",
        "compress.embedding=" + cast},
       "compress.embedding",
       "GNG"},
      {{"parallel.pipeline=2",
        "parallel.data_strategy=zero3",
        "compress.policy=all",
        "compress.embedding=" + cast},
       "compress.embedding",
       "zero3"},
  });
}

TEST_CASE("an evaluation without data and more samples than an order holds are refused") {
  require_refusals({
      {{"run.eval_every=5", "data.split=[1, 0, 0]"}, "run.eval_every", "needs data.valid"},
      {{"run.steps=1073741825"},
       "run.steps",
       "batch.global = 8 must be at most 8589934592 samples; nearest is 1073741824"},
      {{"run.eval_every=5", "run.eval_batches=1073741825"}, "run.eval_batches", "8589934592"},
      {{"run.steps=1099511627776", "batch.global=1073741824"}, "run.steps", "nearest is 8"},
      {{"batch.global=1073741825"}, "batch.global", "at most 1073741824"},
  });
  REQUIRE(refusal({"run.steps=1073741824"}) == "accepted");
  REQUIRE(refusal({"run.eval_batches=1073741825"}) == "accepted");  // nothing is evaluated
  REQUIRE(refusal({"run.eval_every=5",
                   "data.split=[1, 0, 0]",
                   R"(data.valid=[{"path": "corpus/v"}])"}) == "accepted");
  REQUIRE(refusal({"device=rehearsal", "run.eval_every=5", "data.split=[1, 0, 0]"}) == "accepted");
}

TEST_CASE("what is not built is refused by name") {
  using Catch::Contains;
  REQUIRE(refusal({"device=cuda"}) == "accepted");  // to be planned and reported anywhere
  if (cuda::is_built()) {
    REQUIRE_NOTHROW(require_built(Device::cuda));
  } else {
    REQUIRE_THROWS_WITH(require_built(Device::cuda),
                        Catch::StartsWith("device: ") && Contains("built without CUDA"));
  }
  REQUIRE_NOTHROW(require_built(Device::cpu));
  for (const char* assignment : {"compress.tensor_forward={}", "model.kv_heads=2"}) {
    INFO(assignment);
    const std::string key = std::string(assignment).substr(0, std::string(assignment).find('='));
    REQUIRE_THAT(refusal({assignment}), Contains(key) && Contains("not built yet"));
  }
}

}  // namespace slackline
