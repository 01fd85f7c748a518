#include "parallel/predict/class_bytes.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "compress/codec_bytes.h"
#include "core/comm/collective_bytes.h"
#include "parallel/plan/pipeline_boundaries.h"
#include "parallel/plan/step_waits.h"
#include "parallel/sync/bucket_compression.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;
using schedule::Phase;
using schedule::Site;
using schedule::TransferClass;

ClassBytes pipeline_bytes(const MeshJob& job,
                          const schedule::Schedule& schedule,
                          const CompressionPlan::Class& row) {
  const MatrixShape share =
      share_shape(job.micro_batch.num_tokens(), job.model.hidden, job.parallel.tensor);
  const std::size_t messages = schedule::members_of(schedule, row.members).size() *
                               static_cast<std::size_t>(job.parallel.tensor * job.parallel.data);
  const std::size_t raw = share.num_elements() * size_of(job.precision);
  const bool pays = row.codec && pays_at_boundary(*row.codec, share, job.precision);
  const std::size_t sent = pays ? frame_bytes(*row.codec, {{.name = "", .shape = share}}) : raw;
  ClassBytes bytes{.members = row.members, .raw = messages * raw, .sent = messages * sent};
  if (pays) {
    bytes.compressed.push_back({.codec = *row.codec, .shape = {share.rows, share.columns}});
  }
  return bytes;
}

// A sum of float gradients over a group, as it travels without compression.
std::size_t plain_bytes(std::size_t elements, int ranks, DataStrategy strategy) {
  const auto kind = strategy == DataStrategy::zero1 ? TransferRecord::Kind::reduce_scatter
                                                    : TransferRecord::Kind::all_reduce;
  std::size_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes += bytes_sent_by({.kind = kind, .elements = elements}, rank, ranks);
  }
  return bytes;
}

// What the ranks of one place in the mesh (all data ranks of it) exchange of a bucket.
struct BucketBytes {
  TransferClass members{};
  std::size_t raw = 0;
  std::size_t sent = 0;
  std::vector<ClassBytes::Message> compressed{};
};

std::vector<BucketBytes> bucket_bytes(const MeshJob& job,
                                      const CompressionPlan& plan,
                                      const MeshPlace& at) {
  const RankPlan rank = make_rank_plan(job, at);
  const std::vector<Parameter> parameters = Parameters::describe(job.model, rank.slice);
  const int p = job.parallel.pipeline;
  std::vector<BucketBytes> list;
  for (const GradientBucket& bucket :
       gradient_buckets(parameters, job.model.tie_embeddings, rank.reducer.bucket_bytes)) {
    const bool table = bucket.kind == Kind::table;
    if (table && at.pipeline > 0) {
      continue;  // counted with the first stage's, with which it travels
    }
    const int group = job.parallel.data * (table && p > 1 ? 2 : 1);
    const BucketPlace place{.chunks = &rank.slice.chunks,
                            .pipeline_rank = at.pipeline,
                            .pipeline_size = p,
                            .group_size = group,
                            .strategy = job.parallel.data_strategy};
    const CodedBucket compressed = coded_bucket(bucket, plan, place);
    const TransferClass of_norms{
        .site = Site::data_gradient, .stage = at.pipeline, .phase = Phase::tail};
    BucketBytes bytes{
        .members =
            bucket.kind == Kind::norms ? of_norms : class_of(*bucket.holds.back(), bucket, place),
        .raw = plain_bytes(bucket.count, group, job.parallel.data_strategy),
    };
    bytes.sent = compressed.sums.empty() ? bytes.raw : coded_bucket_bytes(compressed);
    for (const CodedSum& sum : compressed.sums) {
      bytes.compressed.push_back({.codec = sum.setting, .shape = message_shape(sum)});
    }
    list.push_back(std::move(bytes));
  }
  return list;
}

void add_place(const MeshJob& job,
               const CompressionPlan& plan,
               const MeshPlace& at,
               std::map<TransferClass, ClassBytes>& classes) {
  for (const BucketBytes& bucket : bucket_bytes(job, plan, at)) {
    ClassBytes& bytes = classes[bucket.members];
    bytes.members = bucket.members;
    bytes.raw += bucket.raw;
    bytes.sent += bucket.sent;
    if (at.tensor == 0) {
      bytes.compressed.insert(
          bytes.compressed.end(), bucket.compressed.begin(), bucket.compressed.end());
    }
  }
}

}  // namespace

std::vector<ClassBytes> class_bytes(const MeshJob& job, const CompressionPlan& plan) {
  std::map<TransferClass, ClassBytes> gradients;
  for (int pipeline = 0; pipeline < job.parallel.pipeline; ++pipeline) {
    for (int tensor = 0; tensor < job.parallel.tensor; ++tensor) {
      add_place(job, plan, {.tensor = tensor, .pipeline = pipeline}, gradients);
    }
  }
  const schedule::Schedule schedule = make_rank_plan(job, {}).executor.schedule;
  std::vector<ClassBytes> list;
  for (const CompressionPlan::Class& row : plan.classes) {
    const bool piped =
        row.members.site == Site::pipeline_forward || row.members.site == Site::pipeline_backward;
    list.push_back(piped ? pipeline_bytes(job, schedule, row) : gradients[row.members]);
    list.back().members = row.members;
  }
  return list;
}

ClassBytes bytes_with(const MeshJob& job, const CompressionPlan::Class& row) {
  if (!schedule::is_once_a_step(row.members.phase)) {
    return pipeline_bytes(job, make_rank_plan(job, {}).executor.schedule, row);
  }
  ClassBytes bytes{.members = row.members};
  for (int pipeline = 0; pipeline < job.parallel.pipeline; ++pipeline) {
    for (const BucketBytes& bucket :
         bucket_bytes(job, {.classes = {row}}, {.pipeline = pipeline})) {
      bytes.raw += bucket.raw;
      bytes.sent += bucket.sent;
    }
  }
  return bytes;
}

MatrixShape typical_shape(const MeshJob& job, const TransferClass& members) {
  return schedule::is_once_a_step(members.phase)
             ? MatrixShape{.rows = job.model.hidden,
                           .columns =
                               std::max<std::int64_t>(1, job.model.hidden / job.parallel.tensor)}
             : share_shape(job.micro_batch.num_tokens(), job.model.hidden, job.parallel.tensor);
}

std::vector<double> saved_axis_bytes(const MeshJob& job, const CompressionPlan& plan) {
  std::vector<double> saved(kReportedAxes.size(), 0.0);
  for (const ClassBytes& row : class_bytes(job, plan)) {
    const bool once = schedule::is_once_a_step(row.members.phase);
    const bool table = row.members.site == Site::embedding && job.parallel.pipeline > 1;
    const std::string_view axis = !once ? "pipeline" : table ? "embedding" : "data";
    const auto place = std::find(kReportedAxes.begin(), kReportedAxes.end(), axis);
    saved[static_cast<std::size_t>(place - kReportedAxes.begin())] +=
        static_cast<double>(row.raw) - static_cast<double>(row.sent);
  }
  return saved;
}

}  // namespace slackline
