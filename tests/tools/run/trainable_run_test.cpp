// Runs that train a part of their model.

#include <filesystem>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using testing::require_refusal;

namespace {

const std::string kUpper = R"(model.trainable=["h.1.*", "ln_f.*"])";

std::vector<std::string> settings(const TrainingRun& run,
                                  const std::string& name,
                                  const std::vector<std::string>& more) {
  return with({"run.dir=" + run.path(name),
               "run.steps=6",
               "run.save_every=3",
               "run.keep=9",
               "batch.micro=2",
               "optimizer.lr=1e-3"},
              more);
}

std::vector<float> weights_of(const std::string& path, const std::string& name) {
  Checkpoint checkpoint(path);
  const Shape shape = checkpoint.tensors().at(name).shape;
  std::vector<float> values(shape.num_elements());
  checkpoint.read(name, Tensor(values.data(), DType::f32, shape));
  return values;
}

}  // namespace

TEST_CASE("a run that trains a part goes on with the same bits and saves no state of the rest") {
  const TrainingRun run;

  struct Form {
    std::string name{};
    int ranks = 1;
    std::vector<std::string> more{};
  };

  const std::vector<Form> forms = {
      {"one rank", 1},
      {"bf16, zero3 in groups",
       4,
       {"precision=bf16", "parallel.data=4", "parallel.group=2", "parallel.data_strategy=IGG"}},
      {"zero1 over a pipeline",
       4,
       {"parallel.data=2", "parallel.pipeline=2", "parallel.data_strategy=zero1"}},
      {"workers",
       4,
       {"parallel.data=4",
        "parallel.group=2",
        "precision=bf16",
        R"(outer={"method": "co2", "period": 2})",
        "parallel.data_strategy=zero3"}}};
  for (const Form& form : forms) {
    INFO(form.name);
    const std::vector<std::string> more = with(form.more, {kUpper});
    std::filesystem::remove_all(run.path("whole"));
    std::filesystem::remove_all(run.path("resumed"));
    require_trained(run, form.ranks, settings(run, "whole", more));
    const std::string whole = run.weights_sha256(run.checkpoint(6, "whole"));
    const std::string middle = run.checkpoint(3, "whole");
    CHECK(run.weights_sha256(middle) != whole);
    require_trained(run,
                    form.ranks,
                    with(settings(run, "resumed", more), {"checkpoint.resume_from=" + middle}));
    CHECK(run.weights_sha256(run.checkpoint(6, "resumed")) == whole);
    const Checkpoint saved(run.checkpoint(6, "whole"));
    for (const char* group : {"adam_m/", "adam_v/"}) {
      CHECK(saved.tensors().contains(std::string(group) + "h.1.mlp.c_fc.weight"));
      CHECK_FALSE(saved.tensors().contains(std::string(group) + "h.0.mlp.c_fc.weight"));
      CHECK_FALSE(saved.tensors().contains(std::string(group) + "wte.weight"));
    }
    for (const char* name : {"weights/h.0.mlp.c_fc.weight", "weights/wte.weight"}) {
      CHECK(weights_of(run.checkpoint(6, "whole"), name) == weights_of(middle, name));
    }
    CHECK(weights_of(run.checkpoint(6, "whole"), "weights/h.1.mlp.c_fc.weight") !=
          weights_of(middle, "weights/h.1.mlp.c_fc.weight"));
  }
}

TEST_CASE("another strategy goes on with what a part of the model has learned") {
  const TrainingRun run;
  const auto train = [&](const char* name, const char* letters, const std::string& from) {
    std::vector<std::string> more = {
        kUpper, "parallel.data=2", std::string("parallel.data_strategy=") + letters};
    if (!from.empty()) {
      more.push_back("checkpoint.resume_from=" + from);
    }
    require_trained(run, 2, settings(run, name, more));
  };
  train("zero3", "zero3", "");
  train("zero2", "zero2", run.checkpoint(3, "zero3"));  // adds in the same order
  CHECK(run.weights_sha256(run.checkpoint(6, "zero2")) ==
        run.weights_sha256(run.checkpoint(6, "zero3")));
}

TEST_CASE("another part is trained from the weights, not from the state") {
  const TrainingRun run;
  require_trained(run, 1, settings(run, "all", {}));
  const std::string from = run.checkpoint(6, "all");
  require_refusal(
      run.train(settings(run, "part", {kUpper, "run.steps=9", "checkpoint.resume_from=" + from})),
      2,
      "model.trainable: must stay what it was");
  require_trained(run, 1, settings(run, "part", {kUpper, "checkpoint.init_from=" + from}));
  CHECK(weights_of(run.checkpoint(6, "part"), "weights/wpe.weight") ==
        weights_of(from, "weights/wpe.weight"));
  require_refusal(
      run.train(settings(
          run, "back", {"run.steps=9", "checkpoint.resume_from=" + run.checkpoint(6, "part")})),
      2,
      "model.trainable: must stay what it was");
}

}  // namespace slackline
