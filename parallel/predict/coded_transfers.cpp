#include "parallel/predict/coded_transfers.h"

#include "parallel/plan/bucket_compression.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/plan/summed_bucket.h"

namespace slackline {

CodedTransfers coded_transfers(const MeshLists& lists,
                               const CompressionPlan& plan,
                               const StepCosts& costs) {
  CodedTransfers coded{.gathers = coded_gathers(lists, plan)};
  for (const auto& [at, gather] : coded.gathers) {
    coded.gather_seconds.emplace(at, codec_seconds_or_assumed(messages_of(gather), costs));
  }
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
        coded.sums.emplace(
            std::pair(place, i),
            CodedTransfers::Sum{.calls = calls_of(bucket),
                                .seconds = codec_seconds_or_assumed(messages_of(bucket), costs)});
      }
    }
  }
  return coded;
}

}  // namespace slackline
