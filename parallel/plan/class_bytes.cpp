#include "parallel/plan/class_bytes.h"

#include <algorithm>
#include <map>

#include "parallel/plan/pipeline_boundaries.h"

namespace slackline {

namespace {

using schedule::TransferClass;

void add(const std::vector<SentBytes>& rows,
         bool first_tensor_rank,
         std::map<TransferClass, ClassBytes>& classes) {
  for (const SentBytes& row : rows) {
    if (!row.members || (!row.gradients && schedule::is_once_a_step(row.members->phase))) {
      continue;
    }
    ClassBytes& bytes = classes[*row.members];
    bytes.raw += row.raw;
    bytes.sent += row.sent;
    if (first_tensor_rank) {
      bytes.compressed.insert(bytes.compressed.end(), row.coded.begin(), row.coded.end());
    }
  }
}

}  // namespace

std::vector<ClassBytes> class_bytes(const MeshLists& lists, const CompressionPlan& plan) {
  const ParallelConfig& mesh = lists.job().parallel;
  std::map<TransferClass, ClassBytes> classes;
  for (int pipeline = 0; pipeline < mesh.pipeline; ++pipeline) {
    const std::vector<SentBytes> messages = pipeline_bytes(lists, plan, {.pipeline = pipeline});
    for (int tensor = 0; tensor < mesh.tensor; ++tensor) {
      const MeshPlace at{.tensor = tensor, .pipeline = pipeline};
      add(sync_bytes(lists, plan, at), tensor == 0, classes);
      add(messages, tensor == 0, classes);
    }
  }
  std::vector<ClassBytes> list;
  for (const CompressionPlan::Class& row : plan.classes) {
    list.push_back(classes[row.members]);
    list.back().members = row.members;
    list.back().is_priced = row.members.site == schedule::Site::parameter_gather ||
                            (mesh.sums_in_passes() && schedule::is_once_a_step(row.members.phase));
  }
  return list;
}

ClassBytes bytes_with(const MeshJob& job, const CompressionPlan::Class& row) {
  const CompressionPlan plan{.classes = {row}};
  const MeshLists lists(job);
  ClassBytes bytes{.members = row.members};
  const bool piped = !schedule::is_once_a_step(row.members.phase);
  for (int pipeline = 0; pipeline < job.parallel.pipeline; ++pipeline) {
    const MeshPlace at{.pipeline = pipeline};
    for (const SentBytes& sent :
         piped ? pipeline_bytes(lists, plan, at) : sync_bytes(lists, plan, at)) {
      if (piped ? sent.members == row.members : sent.gradients) {
        bytes.raw += sent.raw;
        bytes.sent += sent.sent;
      }
    }
  }
  return bytes;
}

MatrixShape typical_shape(const MeshJob& job, const TransferClass& members) {
  return schedule::is_once_a_step(members.phase)
             ? MatrixShape{.rows = job.model.hidden,
                           .columns =
                               std::max<std::int64_t>(1, job.model.hidden / job.parallel.tensor)}
             : boundary_share(job);
}

}  // namespace slackline
