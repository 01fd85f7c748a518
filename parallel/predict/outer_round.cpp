#include "parallel/predict/outer_round.h"

#include <algorithm>

#include "core/comm/collective_bytes.h"
#include "parallel/predict/axis_links.h"
#include "parallel/predict/rank_sync.h"
#include "parallel/sync/outer_plan.h"

namespace slackline {

OuterRound outer_round(const MeshJob& job, int workers, const LinkSpeeds& links) {
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
        for (const Slice& part : outer_transfers(elements_of(outer_shares(rank.plan.owned)))) {
          const CollectiveCall call{.kind = TransferRecord::Kind::all_reduce,
                                    .elements = part.count()};
          for (int worker = 0; worker < workers; ++worker) {
            round.bytes += bytes_sent_by(call, worker, workers);
          }
          const auto bytes = static_cast<double>(part.count() * sizeof(float));
          seconds = seconds + all_reduce_service(link, workers, bytes);
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
