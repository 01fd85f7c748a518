#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "parallel/plan/compression_plan.h"
#include "parallel/predict/step_cost_model.h"
#include "tools/plan/plan_job.h"

namespace slackline {

struct MemoryItem {
  std::string name;
  std::size_t bytes = 0;
  bool on_host = false;  // wherever the ops run
};

// Says what one rank of a run will hold in memory, by name, before anything is allocated; `plans`
// say what it compresses. All places of a job have the same rows, in the same order. The sum is the
// process' peak: the operating system's high-water mark agrees within 2 %. A caller that asks for
// many places makes the job's `schedules` once and gives them.
[[nodiscard]] std::vector<MemoryItem> memory_plan(
    const PlanJob& job,
    const MeshPlace& place,
    const PlanHistory& plans,
    int num_threads,
    std::shared_ptr<const StepSchedules> schedules = nullptr);

// Takes what stands on the CUDA device from it at once, before any of it is made. Throws
// OutOfMemoryError where it has not that much left.
void reserve_device_memory(const std::vector<MemoryItem>& plan);

// Sums what stands on `device`: on a CUDA device all that is not on the host.
[[nodiscard]] std::size_t total_bytes(const std::vector<MemoryItem>& plan, Device device);

// What a rank has of its node.
struct NodeShare {
  int node = 0;
  int num_threads = 1;
};

// Returns them of all ranks of a mesh, in world order, where each node has as many cores as this
// machine. Without links all ranks stand on one. REQUIRES: links have as many devices.
[[nodiscard]] std::vector<NodeShare> node_shares(const ParallelConfig& parallel,
                                                 const LinkSpeeds& links);

// The bytes of the rank that needs most, where ranks have these shares of their nodes. Data ranks
// differ by what they save, and by their shares of the model; the last tensor rank has the largest
// share of the vocabulary. Of more than 256 data ranks, whose shares are within a row of each
// other, as many are looked at, from the first, which saves what all have alike, to the last.
[[nodiscard]] std::size_t largest_memory(const PlanJob& job,
                                         const PlanHistory& plans,
                                         const LinkSpeeds& links);

// What the least of a cluster's devices has; 0: not known.
[[nodiscard]] std::size_t device_memory_limit(const LinkSpeeds& links);

}  // namespace slackline
