#include "parallel/plan/compression_memory.h"

#include <algorithm>
#include <map>
#include <optional>

#include "compress/codec_bytes.h"
#include "compress/residuals.h"
#include "core/tensor/arena.h"
#include "parallel/plan/bucket_compression.h"
#include "parallel/plan/coded_gather.h"
#include "parallel/plan/coded_round.h"
#include "parallel/plan/pipeline_boundaries.h"
#include "parallel/schedule/slots.h"

namespace slackline {

namespace {

// The boundaries of the rank, without memory of their own.
void add_pipeline(const MeshJob& job,
                  const RankPlan& rank,
                  const CompressionPlan& plan,
                  const Workers& workers,
                  CompressionMemory& memory) {
  const PipelineBoundaries boundaries(job, rank);
  const auto slots =
      static_cast<std::size_t>(schedule::input_slots(rank.executor.schedule())
                                   .num_slots[static_cast<std::size_t>(rank.sync.place.pipeline)]);
  for (const BoundaryEnd& boundary : boundaries.ends(plan)) {
    const std::vector<CodecPart> parts = boundary_parts(boundary);
    memory.messages += slots * frame_bytes(boundary.setting, parts);
    const auto codec = make_codec(boundary.setting, parts, boundary.seed, boundary.device);
    memory.workspace =
        std::max(memory.workspace, boundary_workspace_bytes(boundary, *codec, workers));
    if (boundary.side == BoundaryEnd::Side::sends) {
      const std::size_t residuals =
          Residuals::bytes(boundary.setting.error_feedback, parts, boundary.num_micro_batches);
      memory.state += residuals + state_bytes(boundary.setting, parts, CodecUse::sends_frames);
      memory.saved += residuals + learned_bytes(boundary.setting, parts);
    }
  }
}

void add_sum(const CodedSum& sum, const Workers& workers, CompressionMemory& memory) {
  const std::vector<CodecPart> parts = matrix_parts(sum.matrices);
  const std::size_t residuals = Residuals::bytes(sum.setting.error_feedback, parts, 1);
  memory.state += residuals + state_bytes(sum.setting, parts, CodecUse::sums);
  memory.saved += residuals + (sum.rank == 0 ? learned_bytes(sum.setting, parts) : 0);
  if (!sum.owners.empty()) {
    // Slices that are sent and, of frames, those that arrive and the whole frame.
    const std::size_t sent = message_bytes(sum);
    memory.messages += adds(sum.setting.kind) ? sent : 2 * sent + frame_bytes(sum.setting, parts);
  } else if (!adds(sum.setting.kind)) {
    memory.messages += static_cast<std::size_t>(sum.ranks) * frame_bytes(sum.setting, parts);
  }
  memory.workspace = std::max(memory.workspace,
                              make_codec(sum.setting, parts, sum.seed)->workspace_bytes(workers));
}

void add_gradients(const RankSync& rank,
                   const CompressionPlan& plan,
                   const Workers& workers,
                   CompressionMemory& memory) {
  for (const SyncOp& op : rank.plan.ops) {
    if (!op.may_be_coded) {
      continue;
    }
    const CodedBucket compressed = coded_bucket(op, rank.plan, rank.rank, plan);
    if (compressed.sums.empty()) {
      continue;
    }
    for (const CodedSum& sum : compressed.sums) {
      add_sum(sum, workers, memory);
    }
    memory.messages += elements_of(compressed.plain) * size_of(DType::f32);
  }
}

// Frames of weights, in turn by slots.
void add_gathers(const RankSync& rank,
                 const CompressionPlan& plan,
                 const Workers& workers,
                 CompressionMemory& memory) {
  std::map<std::size_t, std::size_t> slots;
  for (std::size_t i = 0; i < rank.plan.buckets.size(); ++i) {
    const std::optional<CodedGather> gather = coded_gather(rank.plan, i, plan);
    if (!gather) {
      continue;
    }
    std::size_t& bytes = slots[*rank.plan.places[i].weight_slot];
    bytes = std::max(bytes, gather->message_bytes());
    const GradientBucket& bucket = rank.plan.buckets[i];
    const std::size_t longest = gather->longest_share();
    const std::size_t widened =
        weight_type(bucket, rank.plan) == DType::f32
            ? 0
            : Arena::aligned_bytes(DType::f32, {static_cast<std::int64_t>(longest)});
    memory.workspace = std::max(
        memory.workspace,
        widened +
            make_codec(gather->setting, share_parts(bucket, longest), 0)->workspace_bytes(workers));
  }
  for (const auto& [slot, bytes] : slots) {
    memory.messages += bytes;
  }
}

}  // namespace

CompressionMemory& CompressionMemory::operator+=(const CompressionMemory& other) {
  state += other.state;
  messages += other.messages;
  workspace += other.workspace;
  saved += other.saved;
  return *this;
}

CompressionMemory compression_memory(const MeshJob& job,
                                     const RankSync& rank,
                                     const PlanHistory& plans,
                                     const Workers& workers,
                                     int copies_of_state) {
  CompressionMemory most;
  for (const PlanFromStep& row : plans) {
    if (!row.plan.compresses_anything()) {
      continue;
    }
    CompressionMemory memory;
    add_pipeline(job, rank.rank, row.plan, workers, memory);
    add_gradients(rank, row.plan, workers, memory);
    add_gathers(rank, row.plan, workers, memory);
    memory.state *= static_cast<std::size_t>(copies_of_state);
    most = memory.total() > most.total() ? memory : most;
  }
  return most;
}

CompressionMemory round_memory(const RankSync& rank,
                               int num_workers,
                               const CodecSetting& setting,
                               const Workers& workers) {
  const CodedBucket round = coded_round(
      outer_shares(rank.plan.owned), rank.plan.owned, setting, {.workers = num_workers});
  CompressionMemory memory{.messages = elements_of(round.plain) * size_of(DType::f32)};
  std::size_t saved = 0;
  for (const CodedSum& sum : round.sums) {
    add_sum(sum, workers, memory);
    for (const SummedPart& matrix : sum.matrices) {
      const std::vector<CodecPart> part = matrix_parts({matrix});
      saved += matrix.counted ? Residuals::bytes(setting.error_feedback, part, 1) +
                                    learned_bytes(setting, part)
                              : 0;
    }
  }
  memory.saved = saved;
  return memory;
}

}  // namespace slackline
