#pragma once

#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/comm/world.h"
#include "tests/equivalence/mesh_run.h"

namespace slackline::testing {

// Parts of tests that look into one sampled step of a compressed run.

inline constexpr CodecSetting kLazyRankTwo = {
    .kind = CodecKind::low_rank, .error_feedback = ErrorFeedback::lazy, .always = true, .rank = 2};

// So small that a sample takes every element of its matrices.
inline MeshRun run_of(int tensor, int pipeline, int data) {
  MeshRun run{.model = {.layers = 2,
                        .hidden = 8,
                        .heads = 2,
                        .sequence = 12,
                        .vocab = 67,
                        .ffn = 16,
                        .dropout = 0.0F}};
  run.parallel.tensor = tensor;
  run.parallel.pipeline = pipeline;
  run.parallel.data = data;
  run.global_batch = run.micro_batch * data * 4;
  return run;
}

// A step of four layers without dropout.
inline MeshRun one_step(const ParallelConfig& parallel) {
  return {.model = {.layers = 4,
                    .hidden = 64,
                    .heads = 4,
                    .sequence = 12,
                    .vocab = 67,
                    .ffn = 96,
                    .dropout = 0.0F},
          .parallel = parallel,
          .steps = 1};
}

inline MeshRun compressed(MeshRun run, const std::string& site, const CodecSetting& setting) {
  run.compress.policy = CompressionPolicy::all;
  run.compress.sites[site] = setting;
  return run;
}

// Runs the passes of one step on every rank, sampled, and what a test does with its model then.
template <typename Then>
void run_step(const MeshRun& run, Then then) {
  run_local_ranks(run.parallel.num_ranks(), {.timeout_seconds = 60.0}, [&](Communicator& world) {
    Groups groups(world, run.parallel, run.model.tie_embeddings);
    MeshModel::Options options = run.options();
    options.sampled.every = 1;
    MeshModel model(options, groups);
    model.initialize(kSeed);
    RankBatches batches(run, model, 1);
    static_cast<void>(model.make_gradients(batches.micro_batches()));
    then(model, batches.micro_batches());
  });
}

inline std::vector<float> values_of(const Tensor& tensor) {
  const std::span<const float> values = tensor.span<float>();
  return {values.begin(), values.end()};
}

template <typename A, typename B>
double dot(const A& a, const B& b) {
  return std::inner_product(
      a.begin(), a.end(), b.begin(), 0.0, std::plus<>(), [](double x, double y) { return x * y; });
}

}  // namespace slackline::testing
