#include "parallel/groups.h"

#include <vector>

namespace slackline {

namespace {

constexpr const char* kTensor = "tensor";
constexpr const char* kData = "data";
constexpr const char* kPipeline = "pipeline";
constexpr const char* kEmbedding = "embedding";

std::vector<int> ends_of_pipeline(const Mesh& mesh, int rank) {
  const std::vector<int> line = mesh.line(rank, kPipeline);
  return {line.front(), line.back()};
}

}  // namespace

Mesh make_mesh(const ParallelConfig& config) {
  return Mesh({{kTensor, config.tensor}, {kData, config.data}, {kPipeline, config.pipeline}});
}

Groups::Groups(Communicator& everyone, const ParallelConfig& config, bool tied_embeddings)
    : mesh(make_mesh(config)), world(&everyone) {
  const int rank = world->rank();
  tensor = world->group(kTensor, mesh.line(rank, kTensor));
  data = world->group(kData, mesh.line(rank, kData));
  forward = world->group(kPipeline, mesh.line(rank, kPipeline));
  backward = world->group(kPipeline, mesh.line(rank, kPipeline));
  const int stage = mesh.coordinate(rank, kPipeline);
  const bool holds_table = stage == 0 || stage == config.pipeline - 1;
  if (!tied_embeddings || config.pipeline == 1 || !holds_table) {
    return;
  }
  std::vector<int> holders;
  for (const int replica : mesh.line(rank, kData)) {
    const std::vector<int> ends = ends_of_pipeline(mesh, replica);
    holders.insert(holders.end(), ends.begin(), ends.end());
  }
  table = world->group(kEmbedding, holders);
  table_pair = world->group(kEmbedding, ends_of_pipeline(mesh, rank));
}

}  // namespace slackline
