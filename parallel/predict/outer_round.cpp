#include "parallel/predict/outer_round.h"

#include <algorithm>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "parallel/plan/coded_round.h"
#include "parallel/predict/axis_links.h"
#include "parallel/predict/collective_times.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

namespace {

// The calls that a rank makes with those at its place in other workers.
std::vector<CollectiveCall> calls_of_round(const RankSync& rank,
                                           int workers,
                                           const std::optional<CodecSetting>& codec) {
  const std::vector<OuterShare> shares = outer_shares(rank.plan.owned);
  if (codec) {
    const CodedRound round = coded_round(shares, rank.plan.owned, *codec, {.workers = workers});
    return calls_of(round.bucket);
  }
  std::vector<CollectiveCall> calls;
  for (const Slice& part : outer_transfers(elements_of(shares))) {
    calls.push_back({.kind = TransferRecord::Kind::all_reduce, .elements = part.count()});
  }
  return calls;
}

}  // namespace

OuterRound outer_round(const MeshJob& job,
                       int workers,
                       const std::optional<CodecSetting>& codec,
                       const LinkSpeeds& links) {
  ParallelConfig all = job.parallel;
  all.group = job.parallel.data;
  all.data = workers * job.parallel.data;
  all.groups_apart = true;
  OuterRound round{.workers = workers};
  const bool known = links && links->num_devices() >= all.num_ranks();
  const schedule::Link link = known ? outer_link(all, *links) : schedule::Link{};
  schedule::Seconds longest{};
  for (int pipeline = 0; pipeline < job.parallel.pipeline; ++pipeline) {
    for (int data = 0; data < job.parallel.data; ++data) {
      for (int tensor = 0; tensor < job.parallel.tensor; ++tensor) {
        const RankSync rank(job, {.tensor = tensor, .data = data, .pipeline = pipeline});
        schedule::Seconds seconds = link.latency;
        for (const CollectiveCall& call : calls_of_round(rank, workers, codec)) {
          for (int worker = 0; worker < workers; ++worker) {
            round.bytes += bytes_sent_by(call, worker, workers);
          }
          seconds = seconds + times_of(direct_links(workers, link), call).service;
        }
        longest = std::max(longest, seconds);
      }
    }
  }
  if (known) {
    round.seconds = longest;
  }
  return round;
}

}  // namespace slackline
