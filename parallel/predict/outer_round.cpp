#include "parallel/predict/outer_round.h"

#include <algorithm>
#include <vector>

#include "compress/codec_bytes.h"
#include "core/comm/collective_bytes.h"
#include "core/comm/engine/scratch_pool.h"
#include "core/comm/engine/sum_scratch.h"
#include "core/comm/world.h"
#include "parallel/plan/coded_round.h"
#include "parallel/predict/axis_links.h"
#include "parallel/predict/collective_times.h"

namespace slackline {

namespace {

// One rank's part of a round: what goes side by side with those at its place in other workers, each
// a list of calls of which one begins when the one before has ended.
struct RankRound {
  std::vector<std::vector<CollectiveCall>> calls{};
  schedule::Seconds coding{};  // 0 without costs
};

// Every sum is coded once, and what comes of it decoded, or the frames of all workers are.
RankRound coded_round_of(const RankSync& rank,
                         int workers,
                         const CodecSetting& codec,
                         const StepCosts* costs) {
  const CodedBucket round =
      coded_round(outer_shares(rank.plan.owned), rank.plan.owned, codec, {.workers = workers});
  RankRound own;
  CodedBucket part = round;
  part.sums.clear();
  own.calls.push_back(calls_of(part));  // plain
  part.plain.clear();
  for (const CodedSum& sum : round.sums) {
    part.sums = {sum};
    own.calls.push_back(calls_of(part));
    if (costs == nullptr) {
      continue;
    }
    const CodecCost cost = codec_cost(*costs, sum.setting, message_shape(sum));
    const int decoded = adds(sum.setting.kind) ? 1 : workers;
    own.coding = own.coding + cost.encode + static_cast<double>(decoded) * cost.decode;
  }
  return own;
}

RankRound plain_round_of(const RankSync& rank, int workers, bool updates_apart) {
  using Kind = TransferRecord::Kind;
  const std::vector<OuterShare> shares = outer_shares(rank.plan.owned);
  RankRound own;
  for (const Slice& part : outer_transfers(elements_of(shares))) {
    if (updates_apart && workers > 1) {
      own.calls.push_back({{.kind = Kind::reduce_scatter, .elements = part.count()},
                           {.kind = Kind::all_gather, .elements = part.count()}});
    } else {
      own.calls.push_back({{.kind = Kind::all_reduce, .elements = part.count()}});
    }
  }
  return own;
}

}  // namespace

std::size_t round_arriving_bytes(const RankSync& rank, int workers, const RoundKind& kind) {
  const RankRound own = kind.codec ? coded_round_of(rank, workers, *kind.codec, nullptr)
                                   : plain_round_of(rank, workers, kind.updates_apart);
  std::vector<SumBytes> sums;
  std::size_t without_window = 0;
  for (const std::vector<CollectiveCall>& calls : own.calls) {
    std::size_t most = 0;  // they follow one another
    for (const CollectiveCall& call : calls) {
      const std::size_t received = scratch_bytes_of(call, 0, workers);
      most = std::max(most, ScratchPool::block_bytes(received));
      if (received > 0) {
        sums.push_back({.tensor = call.elements * call.element_size, .received = received});
      }
    }
    without_window += most;
  }
  return std::min(without_window, scratch_bytes_of_sums(sums, WorldOptions().longest_background));
}

RoundKind round_kind(const OuterConfig& outer, const CompressConfig& compress) {
  const std::optional<CodecSetting> codec = compress.codec_of_rounds();
  return {.codec = codec, .updates_apart = outer.updates_apart(codec.has_value())};
}

OuterRound outer_round(const MeshJob& job,
                       int workers,
                       const RoundKind& kind,
                       const LinkSpeeds& links,
                       const StepCosts* costs) {
  ParallelConfig all = job.parallel;
  all.group = job.parallel.data;
  all.data = workers * job.parallel.data;
  all.groups_apart = true;
  OuterRound round{.workers = workers};
  const bool known = links && links->num_devices() >= all.num_ranks();
  const schedule::Link link =
      known ? group_link(all, *links, kAcrossGroupsAxis, kEveryPlace) : schedule::Link{};
  schedule::Seconds longest{};
  for (int pipeline = 0; pipeline < job.parallel.pipeline; ++pipeline) {
    for (int data = 0; data < job.parallel.data; ++data) {
      for (int tensor = 0; tensor < job.parallel.tensor; ++tensor) {
        const RankSync rank(job, {.tensor = tensor, .data = data, .pipeline = pipeline});
        const RankRound own = kind.codec ? coded_round_of(rank, workers, *kind.codec, costs)
                                         : plain_round_of(rank, workers, kind.updates_apart);
        round.coding = std::max(round.coding, own.coding);
        schedule::Seconds seconds = own.coding;
        int exchanges = 0;
        for (const std::vector<CollectiveCall>& calls : own.calls) {
          int following = 0;
          for (const CollectiveCall& call : calls) {
            for (int worker = 0; worker < workers; ++worker) {
              round.bytes += bytes_sent_by(call, worker, workers);
            }
            const CollectiveTimes times = times_of(direct_links(workers, link), call);
            seconds += times.service;
            following += times.exchanges;
          }
          exchanges = std::max(exchanges, following);
        }
        longest = std::max(longest, seconds + static_cast<double>(exchanges) * link.latency);
      }
    }
  }
  if (known) {
    round.seconds = longest;
  }
  return round;
}

}  // namespace slackline
