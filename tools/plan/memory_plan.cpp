#include "tools/plan/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <set>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/comm/world.h"
#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_memory.h"
#include "core/error.h"
#include "core/tensor/memory_table.h"
#include "core/threads/thread_pool.h"
#include "model/parameters.h"
#include "optim/adamw_optimizer.h"
#include "parallel/mesh/executor_bytes.h"
#include "parallel/mesh/mesh.h"
#include "parallel/plan/compression_memory.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/outer_round.h"
#include "parallel/sync/arriving_bytes.h"
#include "parallel/sync/outer_plan.h"
#include "parallel/sync/rank_sync.h"
#include "parallel/sync/shared_memory.h"

namespace slackline {

namespace {

// Inputs and targets of a rank's micro-batches.
std::size_t tokens_bytes(const MeshJob& job) {
  const std::int64_t tokens = job.num_micro_batches * job.micro_batch.num_tokens();
  return 2 * static_cast<std::size_t>(tokens) * size_of(DType::i32);
}

// What a rank holds of the model, by name.
std::vector<MemoryItem> model_items(const MeshJob& job, const RankSync& rank) {
  if (!rank.rank.sync.shares_memory()) {
    const Parameters::Bytes bytes =
        Parameters::bytes(job.model, {.compute = job.precision, .slice = rank.rank.slice});
    return {{"weights (fp32)", bytes.weights},
            {"gradients (fp32)", bytes.gradients},
            {"input embedding gradient (fp32)", bytes.input_gradient},
            {"weights (bf16 copies)", bytes.copies}};
  }
  const SharedMemory bytes = shared_memory(rank.plan);
  return {{"weights (fp32)", bytes.f32_weights + bytes.masters},
          {"gradients (fp32)", bytes.gradients},
          {"input embedding gradient (fp32)", bytes.input_gradient},
          {"weights (bf16 copies)", bytes.bf16_weights + bytes.bias_copies},
          {"slots of gathered weights and gradients", bytes.slots()}};
}

// The most of any plan of the run.
std::size_t arriving_bytes(const RankSync& rank, const PlanHistory& plans) {
  const auto of = [&](const CompressionPlan& plan) {
    const auto calls = [&](const SyncOp& op) { return traffic_of(op, rank, plan).calls; };
    return arriving_bytes(rank.plan, calls, WorldOptions().longest_background);
  };
  std::size_t most = plans.empty() ? of({}) : 0;
  for (const PlanFromStep& row : plans) {
    most = std::max(most, of(row.plan));
  }
  return most;
}

struct PieceBytes {
  std::size_t moments = 0;
  std::size_t outer = 0;  // anchor, momentum, difference and lead of outer rounds
  std::size_t saved = 0;  // of all that, and weights: what this rank writes into a checkpoint
};

PieceBytes piece_bytes(const RankSync& rank, const PlanJob& job) {
  PieceBytes bytes;
  if (job.outer.is_on()) {
    std::vector<OuterShare> shares = outer_shares(rank.plan.owned);
    // End points and the next start are in one buffer; the rest is this worker's part.
    if (job.num_workers > 1 && round_kind(job.outer, job.compress).updates_apart) {
      bytes.outer = elements_of(shares) * sizeof(float);
      shares = owned_shares(shares, 0, job.num_workers);
    }
    const std::size_t leads = job.outer.eager || job.outer.mix > 0.0 ? 1 : 0;
    bytes.outer += (3 + leads) * elements_of(shares) * sizeof(float);
    // A difference is saved where it is late, or, with fragments, that of the one that has arrived.
    const std::size_t saved = 2 + (job.outer.is_late() ? 1 : 0) + (job.outer.eager ? 1 : 0);
    const auto fragments = static_cast<std::size_t>(job.outer.fragments);
    for (const OuterShare& share : shares) {  // else the first worker writes them, leads apart
      const std::size_t elements = share.counted ? share.range.count() : 0;
      bytes.saved +=
          (saved * elements + (fragments > 1 ? elements / fragments : 0)) * sizeof(float);
    }
  }
  std::vector<Shape> shapes;
  for (const OptimizerPiece& piece : rank.plan.owned) {
    const Shape shape{static_cast<std::int64_t>(piece.range.count())};
    const bool trained = piece.parameter->spec.trained;
    if (trained) {
      shapes.push_back(shape);
    }
    const std::size_t states = trained ? 3 : 1;  // weights, and moments
    bytes.saved += piece.saved ? states * Arena::aligned_bytes(DType::f32, shape) : 0;
  }
  bytes.moments = AdamwOptimizer::moment_bytes(shapes);
  return bytes;
}

// Asks the kernel for this process's resident bytes; 0 where it does not say.
std::size_t resident_bytes() noexcept {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  unsigned long pages = 0;
  if (file == nullptr) {
    return 0;
  }
  const bool found = std::fscanf(file, "%*s %lu", &pages) == 1;
  std::fclose(file);
  return found ? pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// Spreads the data ranks whose memory stands for all.
std::vector<int> looked_at(int data_ranks) {
  constexpr std::int64_t kMost = 256;
  const std::int64_t count = std::min<std::int64_t>(data_ranks, kMost);
  std::vector<int> ranks;
  for (std::int64_t i = 0; i < count; ++i) {
    ranks.push_back(static_cast<int>(count == 1 ? 0 : i * (data_ranks - 1) / (count - 1)));
  }
  return ranks;
}

const std::size_t resident_at_start = resident_bytes();  // before main()

// Program, libraries and small allocations: what the process held when it began, and 16 MiB, where
// a processor multiplies in bf16 22 (measured, about the same for every model), in whole 4 MiB.
std::size_t program_bytes(const MeshJob& job) {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20U;
  constexpr std::size_t kStep = 4 * kMebibyte;
  const bool makes_kernels = job.precision == DType::bf16 && job.device == Device::cpu;
  const std::size_t later = (makes_kernels ? 22 : 16) * kMebibyte;
  return (resident_at_start + later + kStep - 1) / kStep * kStep;
}

// Code of a device says how much scratch its kernels take. If it is not built in, the CPU's takes
// its place, as an approximation.
MeshJob with_known_device(MeshJob job) {
  if (job.device == Device::cuda && !cuda::is_built()) {
    job.device = Device::cpu;
  }
  return job;
}

// What rounds receive into, and on a device what waits in the host's memory, all of a round that is
// updated on the way twice. At the run's end all fragments travel at once.
std::size_t bytes_under_way(const RankSync& rank, const PlanJob& planned) {
  const RoundKind kind = round_kind(planned.outer, planned.compress);
  std::size_t bytes = round_arriving_bytes(rank, planned.num_workers, kind);
  if (planned.compress.warmup_steps > 0 || planned.outer.ending == OuterEnding::mean) {
    bytes = std::max(bytes, round_arriving_bytes(rank, planned.num_workers, {}));
  }
  if (planned.mesh.device == Device::cuda && kind.updates_apart) {
    bytes += 2 * elements_of(outer_shares(rank.plan.owned)) * sizeof(float);
  }
  return bytes;
}

}  // namespace

std::vector<MemoryItem> memory_plan(const PlanJob& planned,
                                    const MeshPlace& place,
                                    const PlanHistory& plans,
                                    int num_threads,
                                    std::shared_ptr<const StepSchedules> schedules) {
  const MeshJob job = with_known_device(planned.mesh);
  const RankSync rank(job, place, schedules ? std::move(schedules) : make_schedules(planned.mesh));
  const ExecutorPlan& executor = rank.rank.executor;
  const PieceBytes pieces = piece_bytes(rank, planned);
  const Workers workers{num_threads, job.device};
  const int copies_of_state = planned.keeps_codec_state ? 2 : 1;
  CompressionMemory compression = compression_memory(job, rank, plans, workers, copies_of_state);
  const RoundKind rounds = round_kind(planned.outer, planned.compress);
  if (planned.outer.is_on() && rounds.codec) {
    compression += round_memory(rank, planned.num_workers, *rounds.codec, workers);
  }
  std::size_t arriving = arriving_bytes(rank, plans);
  if (planned.outer.is_on()) {
    arriving += bytes_under_way(rank, planned);
  }
  std::vector<MemoryItem> items = model_items(job, rank);
  const auto add = [&](std::initializer_list<MemoryItem> more) { items.insert(items.end(), more); };
  add({{"AdamW moments (fp32)", pieces.moments},
       {"activations", activation_bytes(job.model, executor, place.pipeline)},
       {"workspace", executor_workspace_bytes(job.model, executor, workers)},
       {"tokens of a step", tokens_bytes(job)}});
  if (planned.outer.is_on()) {
    add({{"outer anchor, momentum and what travels (fp32)", pieces.outer}});
  }
  // Places of the pipeline have the same rows, whatever is coded or trained at each.
  if (rounds.codec ||
      std::ranges::any_of(plans, &CompressionPlan::compresses_anything, &PlanFromStep::plan)) {
    add({{"compression (state)", compression.state},
         {"compression (messages, scratch)", compression.messages + compression.workspace}});
  }
  add({{"sums under way (slices of other ranks)", arriving, true},
       // A copy of what this rank writes, so that training goes on while it is saved.
       {"checkpoint staging", pieces.saved + compression.saved, true},
       {"token files (mapped)", planned.token_file_bytes, true},
       {"program and libraries", program_bytes(job), true}});
  return items;
}

void reserve_device_memory(const std::vector<MemoryItem>& plan) {
  // Pieces begin at multiples of 256 bytes, and each stream has one of a few bytes.
  constexpr std::size_t kSmallPieces = std::size_t{1} << 20U;
  const std::size_t bytes = total_bytes(plan, Device::cuda) + kSmallPieces;
  if (cuda::pool_of_thread()->reserve(bytes)) {
    return;
  }
  std::map<std::string, HeldBytes> rows;
  for (const MemoryItem& item : plan) {
    if (!item.on_host && item.bytes > 0) {
      rows[item.name] = {.bytes = item.bytes, .buffers = 1};
    }
  }
  const std::size_t left = cuda::free_bytes();
  throw OutOfMemoryError(
      Lines{
          fmt::format("out of device memory for this rank's pool of {} ({} bytes), of which {} are "
                      "left. It is to hold:{}",
                      size_text(bytes),
                      bytes,
                      size_text(left),
                      memory_table(rows))},
      left - std::min(left, kSmallPieces));
}

std::size_t total_bytes(const std::vector<MemoryItem>& plan, Device device) {
  std::size_t total = 0;
  for (const MemoryItem& item : plan) {
    total += item.on_host && device == Device::cuda ? 0 : item.bytes;
  }
  return total;
}

std::vector<NodeShare> node_shares(const ParallelConfig& parallel, const LinkSpeeds& links) {
  const int ranks = parallel.num_ranks();
  const std::vector<int> nodes =
      links ? links->nodes_of_ranks(ranks) : std::vector<int>(static_cast<std::size_t>(ranks), 0);
  std::map<int, int> ranks_of_nodes;
  for (const int node : nodes) {
    ++ranks_of_nodes[node];
  }
  std::map<int, int> threads;  // by how many ranks a node has; asked of the system
  std::vector<NodeShare> shares;
  shares.reserve(nodes.size());
  for (const int node : nodes) {
    const auto [found, is_new] = threads.try_emplace(ranks_of_nodes[node]);
    if (is_new) {
      found->second = default_num_threads(found->first);
    }
    shares.push_back({.node = node, .num_threads = found->second});
  }
  return shares;
}

std::size_t largest_memory(const PlanJob& job, const PlanHistory& plans, const LinkSpeeds& links) {
  const std::vector<NodeShare> shares = node_shares(job.mesh.parallel, links);
  const Mesh mesh = make_mesh(job.mesh.parallel);
  const std::shared_ptr<const StepSchedules> schedules = make_schedules(job.mesh);
  std::size_t most = 0;
  for (int stage = 0; stage < job.mesh.parallel.pipeline; ++stage) {
    for (const int data : looked_at(job.mesh.parallel.data)) {
      // The first tensor rank saves what all have alike; the last may have a row more of a table.
      for (const int tensor : std::set{0, job.mesh.parallel.tensor - 1}) {
        const MeshPlace place{.tensor = tensor, .data = data, .pipeline = stage};
        const int of_stage = mesh.moved(0, "pipeline", stage);
        const int rank = mesh.moved(mesh.moved(of_stage, "data", data), "tensor", tensor);
        const int num_threads = shares[static_cast<std::size_t>(rank)].num_threads;
        most = std::max(
            most,
            total_bytes(memory_plan(job, place, plans, num_threads, schedules), job.mesh.device));
      }
    }
  }
  return most;
}

std::size_t device_memory_limit(const LinkSpeeds& links) {
  double least = 0.0;
  for (const Cluster::Nodes& nodes : links ? links->nodes : std::vector<Cluster::Nodes>()) {
    if (nodes.memory_bytes > 0.0 && (least == 0.0 || nodes.memory_bytes < least)) {
      least = nodes.memory_bytes;
    }
  }
  return static_cast<std::size_t>(least);
}

}  // namespace slackline
