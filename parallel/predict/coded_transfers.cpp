#include "parallel/predict/coded_transfers.h"

#include "parallel/plan/bucket_compression.h"
#include "parallel/plan/summed_bucket.h"

namespace slackline {

CodedTransfers coded_transfers(const MeshLists& lists, const CompressionPlan& plan) {
  CodedTransfers coded{.gathers = coded_gathers(lists, plan)};
  const ParallelConfig& mesh = lists.job().parallel;
  if (!mesh.sums_in_passes()) {
    return coded;
  }
  for (int place = 0; place < mesh.pipeline; ++place) {
    const RankSync& rank = lists.at(place);
    for (std::size_t i = 0; i < rank.plan.ops.size(); ++i) {
      const SyncOp& op = rank.plan.ops[i];
      if (!op.may_be_coded || op.begin != SyncOp::Begin::pass_made) {
        continue;
      }
      const SummedBucket summed = summed_bucket(op, rank.plan);
      const CodedBucket bucket = coded_bucket(op, summed.bucket, rank.rank, plan);
      if (!bucket.sums.empty()) {
        coded.sums.emplace(std::pair(place, i), calls_of(bucket));
      }
    }
  }
  return coded;
}

}  // namespace slackline
