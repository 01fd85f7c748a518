#pragma once

#include "core/tensor/dtype.h"
#include "model/model_slice.h"
#include "parallel/step/gradient_reducer.h"
#include "parallel/step/groups.h"
#include "parallel/step/pipeline_executor.h"

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
  int data = 0;
  int pipeline = 0;
};

// What one rank holds and does: a function of the job and its place.
struct RankPlan {
  ModelSlice slice{};
  PipelineExecutor::Options executor{};
  GradientReducer::Options reducer{};
};

// Of the rank whose groups these are.
[[nodiscard]] MeshPlace place_of(const Groups& groups);

[[nodiscard]] RankPlan make_rank_plan(const MeshJob& job, const MeshPlace& place);

}  // namespace slackline
