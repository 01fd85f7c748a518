#include "parallel/mesh/rank_plan.h"

#include <algorithm>
#include <utility>

#include "parallel/mesh/stage_split.h"
#include "parallel/schedule/forward_only.h"
#include "parallel/schedule/schedule_traits.h"

namespace slackline {

namespace {

// Small enough that most gradients travel while backward still makes others, large enough that what
// a message costs besides its bytes does not count. Where updates are shared out, what a codec cuts
// by rows is padded to the longest slice of each bucket, so that small ones would send more.
std::size_t bucket_bytes(const std::vector<Parameter>& parameters, const DataStrategy& strategy) {
  constexpr std::size_t kMostBuckets = 8;
  constexpr std::size_t kLargest = std::size_t{16} << 20U;
  const std::size_t smallest = std::size_t{1} << (strategy.shares_updates() ? 20U : 18U);
  std::size_t bytes = 0;
  for (const Parameter& parameter : parameters) {
    bytes += parameter.spec.trained ? parameter.shard.shape.num_elements() * sizeof(float) : 0;
  }
  return std::clamp(bytes / kMostBuckets, smallest, kLargest);
}

}  // namespace

ModelSlice model_slice(const MeshJob& job, const MeshPlace& place) {
  return {.tensor_rank = place.tensor,
          .tensor_size = job.parallel.tensor,
          .chunks = chunks_of_rank(
              split_layers(job.model, job.parallel), place.pipeline, job.parallel.pipeline)};
}

std::vector<Parameter> describe_parameters(const MeshJob& job, const MeshPlace& place) {
  const bool shared = SyncLayout{.compute = job.precision,
                                 .strategy = job.parallel.data_strategy,
                                 .keeps_weights = !job.model.trainable.empty()}
                          .shares_memory();
  return Parameters::describe(
      job.model,
      model_slice(job, place),
      shared ? Parameters::Biases::before_norms : Parameters::Biases::with_matrices);
}

RankPlan make_rank_plan(const MeshJob& job, const MeshPlace& place) {
  return rank_plan_with(job, place, describe_parameters(job, place), make_schedules(job));
}

std::shared_ptr<const StepSchedules> make_schedules(const MeshJob& job) {
  const schedule::ScheduleOptions options{.num_ranks = job.parallel.pipeline,
                                          .num_chunks = job.parallel.chunks,
                                          .num_micro_batches = job.num_micro_batches,
                                          .transfers = job.parallel.transfers};
  return std::make_shared<const StepSchedules>(
      StepSchedules{.training = schedule::make_schedule(job.parallel.schedule, options),
                    .evaluation = schedule::forward_only(options)});
}

RankPlan rank_plan_with(const MeshJob& job,
                        const MeshPlace& place,
                        const std::vector<Parameter>& parameters,
                        std::shared_ptr<const StepSchedules> schedules) {
  const ParallelConfig& parallel = job.parallel;
  const ModelSlice slice = model_slice(job, place);
  const bool splits_backward = schedule::traits_of(parallel.schedule).splits_backward;
  return {.slice = slice,
          .executor = {.schedules = std::move(schedules),
                       .stage = {.micro_batch = job.micro_batch,
                                 .compute = job.precision,
                                 .share = {.rank = place.tensor,
                                           .size = parallel.tensor,
                                           .sequence_parallel =
                                               parallel.sequence_parallel && parallel.tensor > 1},
                                 .weight_gradients = splits_backward ? Stage::WeightGradients::later
                                                                     : Stage::WeightGradients::now,
                                 .device = job.device},
                       .chunks = slice.chunks,
                       .adds_micro_batches = parallel.data_strategy.gradients == Extent::none},
          .sync = {.place = place,
                   .tensor_size = parallel.tensor,
                   .data_size = parallel.data,
                   .data_ranks_of_group = parallel.data_ranks_of_group(),
                   .data_hierarchy = parallel.data_hierarchy(),
                   .table_hierarchy = parallel.table_hierarchy(),
                   .compute = job.precision,
                   .pipeline_size = parallel.pipeline,
                   .strategy = parallel.data_strategy,
                   .by_levels = parallel.sums_by_levels(),
                   .keeps_weights = !job.model.trainable.empty(),
                   .embedding_sync = parallel.embedding_sync,
                   .sequence_parallel = parallel.sequence_parallel && parallel.tensor > 1,
                   .tied_table = job.model.tie_embeddings,
                   .table_on_two_stages =
                       job.model.tie_embeddings && parallel.pipeline > 1 &&
                       (place.pipeline == 0 || place.pipeline == parallel.pipeline - 1),
                   .bucket_bytes = bucket_bytes(parameters, parallel.data_strategy)}};
}

}  // namespace slackline
