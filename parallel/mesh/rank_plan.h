#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/comm/hierarchy.h"
#include "core/tensor/buffer.h"
#include "core/tensor/device.h"
#include "core/tensor/dtype.h"
#include "model/model_slice.h"
#include "model/stage.h"
#include "parallel/mesh/parallel_config.h"
#include "parallel/schedule/ops.h"

namespace slackline {

// What training a model over a mesh depends on, the optimizer apart.
struct MeshJob {
  ModelConfig model{};
  ParallelConfig parallel{};
  DType precision = DType::f32;
  Device device = Device::cpu;
  BatchShape micro_batch{};
  int num_micro_batches = 1;  // of one data rank in a step

  [[nodiscard]] std::int64_t global_batch() const {  // sequences of a step
    return micro_batch.B * num_micro_batches * parallel.data;
  }
};

struct MeshPlace {
  int tensor = 0;
  int data = 0;  // over all groups
  int pipeline = 0;
};

// StepSchedules are the orders in which all ranks of a pipeline run a training step, and forward
// passes alone.
struct StepSchedules {
  schedule::Schedule training;
  schedule::Schedule evaluation;
};

// What a rank's pipeline executor runs (parallel/step/pipeline_executor.h).
struct ExecutorPlan {
  [[nodiscard]] const schedule::Schedule& schedule() const { return schedules->training; }

  [[nodiscard]] const schedule::Schedule& evaluation() const { return schedules->evaluation; }

  std::shared_ptr<const StepSchedules> schedules{};  // one for all ranks of a job; not null
  Stage::Options stage{};            // micro-batch shape, dtype, sequence parallelism
  std::vector<ChunkSlice> chunks{};  // of this rank
  Backing activations = Backing::memory;
  // Whether gradients of matrices are added up over micro-batches where passes make them; else each
  // pass makes them anew.
  bool adds_micro_batches = true;
};

// Where a rank's gradients and weights are shared with others, and how (parallel/sync/sync_plan.h).
struct SyncLayout {
  // Whether weights that passes read, gradients or masters are anywhere but in whole buffers of
  // this rank (parallel/sync/shared_memory.h).
  [[nodiscard]] bool shares_memory() const {
    return strategy.shares_passes() || (strategy.shares_updates() && compute == DType::bf16) ||
           keeps_weights;
  }

  MeshPlace place{};
  int tensor_size = 1;
  int data_size = 1;
  int data_ranks_of_group = 1;
  Hierarchy data_hierarchy{};   // of the data ranks of all groups
  Hierarchy table_hierarchy{};  // of the holders of a table on two stages
  DType compute = DType::f32;   // of the weights that passes read
  int pipeline_size = 1;
  DataStrategy strategy{};
  bool by_levels = false;      // ParallelConfig::sums_by_levels()
  bool keeps_weights = false;  // some are not trained
  EmbeddingSync embedding_sync = EmbeddingSync::fused;
  bool sequence_parallel = false;
  bool tied_table = false;           // token embedding and head are one table
  bool table_on_two_stages = false;  // and this rank holds one of its copies
  std::size_t bucket_bytes = std::size_t{16} << 20U;
};

// What one rank holds and does: a function of the job and its place.
struct RankPlan {
  ModelSlice slice{};
  ExecutorPlan executor{};
  SyncLayout sync{};
};

[[nodiscard]] RankPlan make_rank_plan(const MeshJob& job, const MeshPlace& place);

[[nodiscard]] std::shared_ptr<const StepSchedules> make_schedules(const MeshJob& job);

// Return the parts of a rank's plan; the last one, the whole plan from parts that are made already.
[[nodiscard]] ModelSlice model_slice(const MeshJob& job, const MeshPlace& place);
[[nodiscard]] std::vector<Parameter> describe_parameters(const MeshJob& job,
                                                         const MeshPlace& place);
[[nodiscard]] RankPlan rank_plan_with(const MeshJob& job,
                                      const MeshPlace& place,
                                      const std::vector<Parameter>& parameters,
                                      std::shared_ptr<const StepSchedules> schedules);

}  // namespace slackline
