#include "parallel/step/groups.h"

#include <numeric>
#include <vector>

#include "core/comm/device/nccl_communicator.h"
#include "core/comm/links/scaled_communicator.h"

namespace slackline {

namespace {

constexpr const char* kTensor = "tensor";
constexpr const char* kData = "data";
constexpr const char* kPipeline = "pipeline";
constexpr const char* kEmbedding = "embedding";
constexpr const char* kWorker = "worker";
constexpr const char* kOuter = "outer";

// The ranks of the own worker: groups are the outermost axis, so they follow one another.
std::unique_ptr<Communicator> make_worker(Communicator& everyone, const ParallelConfig& config) {
  if (config.num_workers() == 1) {
    return nullptr;
  }
  const int size = everyone.size() / config.num_workers();
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), everyone.rank() / size * size);
  return everyone.group(kWorker, members);
}

}  // namespace

MeshPlace place_of(const Groups& groups) {
  return {.tensor = groups.tensor_rank(),
          .data = groups.data->rank(),
          .pipeline = groups.pipeline_rank()};
}

Groups::Groups(Communicator& all,
               const ParallelConfig& whole,
               bool tied_embeddings,
               double scale,
               Device device,
               const DeviceTransport& transport)
    : everyone(&all),
      worker(make_worker(all, whole)),
      mesh(make_mesh(whole.of_worker())),
      world(worker == nullptr ? everyone : worker.get()),
      staging(device == Device::cuda ? std::make_shared<HostStaging>() : nullptr),
      ranks_are_processes(transport.ranks_are_processes) {
  const ParallelConfig config = whole.of_worker();
  const int rank = world->rank();
  const auto make_of = [&](Communicator& parent,
                           const char* axis,
                           const std::vector<int>& members,
                           Urgency urgency,
                           NcclTraffic traffic) {
    std::unique_ptr<Communicator> made = scaled(parent.group(axis, members, urgency), scale);
    if (staging != nullptr) {
      made = host_staged(std::move(made), staging);
      made = transport.uses_nccl ? nccl(std::move(made), staging, traffic) : std::move(made);
    }
    // All in one group of data ranks, for those that are not told otherwise.
    made->set_hierarchy({.ranks_in_group = static_cast<int>(members.size())});
    return made;
  };
  const auto make = [&](const char* axis,
                        const std::vector<int>& members,
                        Urgency urgency = Urgency::now,
                        NcclTraffic traffic = NcclTraffic::collectives) {
    return make_of(*world, axis, members, urgency, traffic);
  };
  if (worker != nullptr) {
    outer = make_of(*everyone,
                    kOuter,
                    make_mesh(whole).line(everyone->rank(), kAcrossGroupsAxis),
                    Urgency::background,
                    NcclTraffic::collectives);
    outer->set_hierarchy({});  // each of its ranks is of another group
  }
  tensor = make(kTensor, mesh.line(rank, kTensor));
  data = make(kData, mesh.line(rank, kData), Urgency::background);
  data->set_hierarchy(config.data_hierarchy());
  if (config.num_groups() > 1) {
    group = make(kData, mesh.line(rank, kGroupAxis), Urgency::background);
    across_groups = make(kData, mesh.line(rank, kAcrossGroupsAxis), Urgency::background);
    across_groups->set_hierarchy({});
  }
  const std::vector<int> line = mesh.line(rank, kPipeline);
  forward = make(kPipeline, line, Urgency::now, NcclTraffic::neighbours);
  backward = make(kPipeline, line, Urgency::now, NcclTraffic::neighbours);
  const int stage = mesh.coordinate(rank, kPipeline);
  const bool holds_table = stage == 0 || stage == config.pipeline - 1;
  if (!tied_embeddings || config.pipeline == 1 || !holds_table) {
    return;
  }
  table = make(kEmbedding, table_holders(mesh, rank), Urgency::background);
  table->set_hierarchy(config.table_hierarchy());
  table_pair = make(kEmbedding, ends_of_pipeline(mesh, rank), Urgency::background);
}

}  // namespace slackline
