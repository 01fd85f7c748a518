// Weights that travel coded to the passes that read them: every rank computes with what frames
// decode to, its own among them, and updates what it keeps. Codec cast makes that exact: passes
// read weights rounded to bf16.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compress/compress_config.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/layouts.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

MeshRun one_step(int tensor, int pipeline, int data, int group) {
  MeshRun run = grouped_run(tensor, pipeline, data, group);
  run.steps = 1;
  return run;
}

MeshRun coded(MeshRun run, const std::string& letters, const std::string& codec) {
  run.parallel.data_strategy = *data_strategy_named(letters);
  run.compress = read_compress_config(JsonReader::parse(
      fmt::format(R"({{"policy": "all", "parameter_gather": {}}})", codec), "test"));
  return run;
}

// Rounds to bf16 what passes will read of matrices and tables.
void round_weights(const MeshModel& model) {
  auto& changed = const_cast<MeshModel&>(model);
  for (std::size_t i = 0; i < model.pieces().size(); ++i) {
    const ParameterRole role = model.pieces()[i].parameter->spec.role;
    if (role == ParameterRole::bias || is_norm(role)) {
      continue;
    }
    const Tensor weight = changed.optimizer().tensors()[i].weight;
    for (float& value : weight.span<float>()) {
      value = static_cast<float>(BFloat16(value));
    }
  }
  changed.publish_weights();
}

// The same order of sums, and weights whole on every rank.
std::string with_whole_weights(const std::string& letters) {
  return "N" + letters.substr(1);
}

void require_rounded_weights(const MeshRun& run, const std::string& letters) {
  INFO(letters);
  const MeshRunResult result = run_mesh(coded(run, letters, R"({"codec": "cast"})"));
  MeshRun whole = run;
  whole.parallel.data_strategy = *data_strategy_named(with_whole_weights(letters));
  const MeshRunResult expected = run_mesh(
      whole,
      {.batches = [](const MeshModel& model, std::vector<MicroBatch>&) { round_weights(model); }});
  CHECK(result.losses == expected.losses);
  CHECK(result.norms == expected.norms);
  CHECK(tensor_differences("gradient", result.gradients, expected.gradients) == "");
  CHECK(tensor_differences("gradient", result.gradients, run_mesh(whole).gradients) != "");
}

}  // namespace

TEST_CASE("passes read the weights that frames decode to, owners too") {
  for (const char* letters : {"GGG", "GNG", "IGG", "IIG", "III", "ING"}) {
    require_rounded_weights(one_step(1, 1, 4, 2), letters);
  }
  require_rounded_weights(one_step(1, 2, 2, 0), "GGG");  // a table on two stages: in halves
  require_rounded_weights(one_step(1, 2, 4, 2), "IGG");
  require_rounded_weights(one_step(2, 2, 2, 0), "GNG");
  MeshRun recomputed = one_step(2, 1, 2, 0);
  recomputed.model.recompute = Recompute::block;
  require_rounded_weights(recomputed, "GGG");
  MeshRun interleaved = one_step(1, 2, 2, 0);
  interleaved.parallel.schedule = ScheduleName::interleaved;
  interleaved.parallel.chunks = 2;
  require_rounded_weights(interleaved, "GGG");
  MeshRun untied = one_step(1, 1, 3, 0);
  untied.model.tie_embeddings = false;
  untied.global_batch = 12;
  require_rounded_weights(untied, "GGG");
}

// More ranks than some buckets have elements: shares of nothing have no frame.
TEST_CASE("coded weights arrive where a share is empty") {
  MeshRun run = one_step(1, 1, 48, 4);
  run.model = {.layers = 1, .hidden = 4, .heads = 1, .sequence = 4, .vocab = 11, .ffn = 8};
  run.global_batch = 48;
  run.micro_batch = 1;
  for (const char* letters : {"GGG", "IIG"}) {
    require_rounded_weights(run, letters);
  }
}

TEST_CASE("8-bit weights change gradients by what they round off, and what is kept stays exact") {
  for (const DType precision : {DType::f32, DType::bf16}) {
    MeshRun run = one_step(1, 2, 4, 2);
    run.precision = precision;
    for (const char* letters : {"GGG", "IGG"}) {
      INFO(letters << ", " << name_of(precision));
      MeshRun plain = run;
      plain.parallel.data_strategy = *data_strategy_named(letters);
      const MeshRunResult expected = run_mesh(plain);
      const MeshRunResult result =
          run_mesh(coded(run, letters, R"({"codec": "quantize", "bits": 8})"));
      const double far = gradient_distance(result, expected);
      CHECK(far > 1e-4);
      // 0.7 % of each weight's group, in every product of a layer.
      CHECK(far < 0.05);
      // One step of at most a learning rate each, from the same weights: rounded ones would be off
      // by up to a hundredth of 0.02 in all of them.
      CHECK(distance(result, expected).weight < 2.1);
    }
  }
}

TEST_CASE("losses of 8 bits stay near plain ones, and nearer than those of 2") {
  MeshRun run = one_step(1, 1, 2, 0);
  run.steps = 30;
  run.parallel.data_strategy = DataStrategy::zero3;
  const MeshRunResult plain = run_mesh(run);
  const auto largest_gap = [&](int bits) {
    const MeshRunResult result =
        run_mesh(coded(run, "GGG", fmt::format(R"({{"codec": "quantize", "bits": {}}})", bits)));
    double gap = 0.0;
    for (std::size_t i = 0; i < plain.losses.size(); ++i) {
      gap = std::max(gap, std::abs(result.losses[i] - plain.losses[i]) / plain.losses[i]);
    }
    return gap;
  };
  const double gap = largest_gap(8);
  CHECK(gap > 0.0);
  CHECK(gap < 0.001);
  CHECK(largest_gap(2) > 3.0 * gap);
}

}  // namespace slackline::testing
