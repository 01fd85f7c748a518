#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "core/comm/device/device_transport.h"
#include "core/comm/device/host_staged.h"
#include "core/tensor/device.h"
#include "parallel/mesh/mesh.h"
#include "parallel/mesh/parallel_config.h"
#include "parallel/mesh/rank_plan.h"

namespace slackline {

// Every communicator that one rank of a run uses, made once, in the same order on all ranks. Owned
// by the trainer and used by its thread alone.
struct Groups {
  // `everyone` are all ranks of the run. Where groups are workers, the mesh and all that follows
  // is one worker's.
  // `scale` divides the bytes of messages on every axis: of a rehearsal, else 1.
  // With `device` cuda they take tensors of that device, once `staging` follows a stream: by NCCL
  // where `transport` says so.
  Groups(Communicator& everyone,
         const ParallelConfig& config,
         bool tied_embeddings,
         double scale = 1.0,
         Device device = Device::cpu,
         const DeviceTransport& transport = {});

  [[nodiscard]] int tensor_rank() const { return tensor->rank(); }

  // Counts over all data ranks of the run.
  [[nodiscard]] int replica() const { return worker_index() * data->size() + data->rank(); }

  [[nodiscard]] int worker_index() const { return outer == nullptr ? 0 : outer->rank(); }

  [[nodiscard]] int num_workers() const { return outer == nullptr ? 1 : outer->size(); }

  // Whether this is the rank that speaks and writes for the run.
  [[nodiscard]] bool is_first_rank() const { return everyone->rank() == 0; }

  [[nodiscard]] int pipeline_rank() const { return forward->rank(); }

  Communicator* everyone;
  std::unique_ptr<Communicator> worker;  // null where all ranks step together
  Mesh mesh;
  Communicator* world;                   // the ranks that step together
  std::shared_ptr<HostStaging> staging;  // null where tensors are the host's
  bool ranks_are_processes;              // as DeviceTransport says
  std::unique_ptr<Communicator> tensor;
  // Has the data ranks of all groups (under outer rounds of the worker's), in the order of the
  // groups, and goes through them as `config` says. Every communicator knows which of its ranks
  // stand in one group (Communicator::hierarchy).
  std::unique_ptr<Communicator> data;
  // Data ranks of this rank's group, and those at its place in every group. Null where there is one
  // group.
  std::unique_ptr<Communicator> group;
  std::unique_ptr<Communicator> across_groups;
  // Ranks of one pipeline, once for each direction: messages of one do not wait for the other's.
  std::unique_ptr<Communicator> forward;
  std::unique_ptr<Communicator> backward;
  // Holders of one part of a tied table that stands on two stages: first and last stage of data
  // rank 0, of data rank 1, ... Null elsewhere.
  std::unique_ptr<Communicator> table;
  // First and last stage of one pipeline; null elsewhere.
  std::unique_ptr<Communicator> table_pair;
  // Ranks at this one's place in every worker; null where all ranks step together.
  std::unique_ptr<Communicator> outer;
};

// Returns the place of the rank whose groups these are.
[[nodiscard]] MeshPlace place_of(const Groups& groups);

}  // namespace slackline
