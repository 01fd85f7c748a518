#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compress/compress_config.h"
#include "parallel/step/mesh_model.h"

namespace slackline::testing {

// A training job of a few steps on random tokens, which need no file: token i of sample s is a
// function of (s, i).
struct MeshRun {
  ModelConfig model{};
  ParallelConfig parallel{};
  DType precision = DType::f32;
  std::int64_t global_batch = 16;  // sequences
  std::int64_t micro_batch = 2;
  int steps = 5;
  CompressConfig compress{};
  MeshModel::Makers makers{};

  [[nodiscard]] MeshModel::Options options() const;
};

// What a test changes on every rank of a run, to see whether the suite notices.
struct Interference {
  // Stands between the model and its world.
  std::function<std::unique_ptr<Communicator>(Communicator& world)> world{};
  // Changes what a rank is about to work on.
  std::function<void(const MeshModel& model, std::vector<MicroBatch>& micro_batches)> batches{};
  // Makes the norm a rank goes on with; `agreed` is the right one.
  std::function<double(MeshModel& model, double agreed)> norm{};
};

// Logical tensors by name, each element in row-major order.
using LogicalTensors = std::map<std::string, std::vector<float>>;

struct MeshRunResult {
  std::vector<double> losses{};  // of each step
  std::vector<double> norms{};
  double evaluation = 0.0;     // loss of the first step's batch after the last step
  LogicalTensors gradients{};  // of step 1, of what is trained
  LogicalTensors weights{};    // after the last step
};

constexpr double kLearningRate = 1e-3;  // of every step
constexpr std::uint64_t kSeed = 1234;

// The tokens of one rank's share of a step and the micro-batches that view them, as the trainer
// deals them out: micro-batch m of all data ranks is one run of sequences.
class RankBatches {
 public:
  RankBatches(const MeshRun& run, int data_rank, int step);

  RankBatches(const MeshRun& run, const MeshModel& model, int step)
      : RankBatches(run, model.groups().replica(), step) {}

  [[nodiscard]] std::vector<MicroBatch>& micro_batches() { return micro_batches_; }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
  std::vector<MicroBatch> micro_batches_;
};

// Runs the job with every rank a thread of one compute thread. Throws Error when ranks know
// different numbers of a step, when their pieces do not cover each element of the model once, or
// when copies of a weight differ at the end.
[[nodiscard]] MeshRunResult run_mesh(const MeshRun& run, const Interference& interference = {});

}  // namespace slackline::testing
