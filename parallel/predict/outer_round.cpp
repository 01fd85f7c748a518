#include "parallel/predict/outer_round.h"

#include <algorithm>
#include <map>
#include <string>

#include "compress/codec_bytes.h"
#include "core/comm/collective_bytes.h"
#include "core/comm/engine/scratch_pool.h"
#include "core/comm/engine/sum_scratch.h"
#include "core/comm/world.h"
#include "model/parameter_table.h"
#include "parallel/plan/coded_round.h"
#include "parallel/predict/axis_links.h"
#include "parallel/predict/collective_times.h"
#include "parallel/sync/outer_plan.h"

namespace slackline {

namespace {

// One rank's part of a round: what goes side by side with those at its place in other workers, each
// a list of calls of which one begins when the one before has ended.
struct RankRound {
  std::vector<std::vector<CollectiveCall>> calls{};
  schedule::Seconds coding{};  // 0 without costs
};

// Every sum is coded once, and what comes of it decoded, or the frames of all workers are.
RankRound coded_round_of(const std::vector<OuterShare>& shares,
                         const std::vector<OptimizerPiece>& pieces,
                         int workers,
                         const CodecSetting& codec,
                         const StepCosts* costs) {
  const CodedBucket round = coded_round(shares, pieces, codec, {.workers = workers});
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

RankRound plain_round_of(const std::vector<OuterShare>& shares, int workers, bool updates_apart) {
  using Kind = TransferRecord::Kind;
  const std::size_t first = shares.empty() ? 0 : shares.front().first;
  RankRound own;
  for (const Slice& part : outer_transfers(elements_of(shares) - first)) {
    if (updates_apart && workers > 1) {
      own.calls.push_back({{.kind = Kind::reduce_scatter, .elements = part.count()},
                           {.kind = Kind::all_gather, .elements = part.count()}});
    } else {
      own.calls.push_back({{.kind = Kind::all_reduce, .elements = part.count()}});
    }
  }
  return own;
}

// Returns what is sent of shares that follow one another, all of the rank's or a fragment's.
RankRound round_of(const std::vector<OuterShare>& shares,
                   const std::vector<OptimizerPiece>& pieces,
                   int workers,
                   const RoundKind& kind,
                   const StepCosts* costs = nullptr) {
  return kind.codec ? coded_round_of(shares, pieces, workers, *kind.codec, costs)
                    : plain_round_of(shares, workers, kind.updates_apart);
}

// Returns what the ranks at this place in all workers send.
std::size_t bytes_of(const RankRound& own, int workers) {
  std::size_t bytes = 0;
  for (const std::vector<CollectiveCall>& calls : own.calls) {
    for (const CollectiveCall& call : calls) {
      for (int worker = 0; worker < workers; ++worker) {
        bytes += bytes_sent_by(call, worker, workers);
      }
    }
  }
  return bytes;
}

// Every rank of one worker.
std::vector<MeshPlace> places_of(const ParallelConfig& parallel) {
  std::vector<MeshPlace> places;
  for (int pipeline = 0; pipeline < parallel.pipeline; ++pipeline) {
    for (int data = 0; data < parallel.data; ++data) {
      for (int tensor = 0; tensor < parallel.tensor; ++tensor) {
        places.push_back({.tensor = tensor, .data = data, .pipeline = pipeline});
      }
    }
  }
  return places;
}

}  // namespace

std::size_t round_arriving_bytes(const RankSync& rank, int workers, const RoundKind& kind) {
  const RankRound own = round_of(outer_shares(rank.plan.owned), rank.plan.owned, workers, kind);
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

std::vector<std::size_t> fragment_bytes(const MeshJob& job,
                                        int workers,
                                        const RoundKind& kind,
                                        int fragments) {
  const std::vector<ParameterSpec> table = parameter_table(job.model);
  const std::vector<int> of_parameters = fragments_of(table, fragments);
  std::map<std::string, int> of_names;
  for (std::size_t i = 0; i < table.size(); ++i) {
    of_names[table[i].name] = of_parameters[i];
  }
  std::vector<std::size_t> bytes(static_cast<std::size_t>(fragments));
  for (const MeshPlace& place : places_of(job.parallel)) {
    const RankSync rank(job, place);
    const std::vector<OptimizerPiece>& pieces = rank.plan.owned;
    std::vector<int> of_pieces;
    of_pieces.reserve(pieces.size());
    for (const OptimizerPiece& piece : pieces) {
      of_pieces.push_back(of_names.at(piece.parameter->spec.name));
    }
    std::vector<std::vector<OuterShare>> shares(bytes.size());
    for (const OuterShare& share : outer_shares(pieces, of_pieces)) {
      shares[static_cast<std::size_t>(share.fragment)].push_back(share);
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] += bytes_of(round_of(shares[i], pieces, workers, kind), workers);
    }
  }
  return bytes;
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
  for (const MeshPlace& place : places_of(job.parallel)) {
    const RankSync rank(job, place);
    const RankRound own =
        round_of(outer_shares(rank.plan.owned), rank.plan.owned, workers, kind, costs);
    round.bytes += bytes_of(own, workers);
    round.coding = std::max(round.coding, own.coding);
    schedule::Seconds seconds = own.coding;
    int exchanges = 0;
    for (const std::vector<CollectiveCall>& calls : own.calls) {
      int following = 0;
      for (const CollectiveCall& call : calls) {
        const CollectiveTimes times = times_of(direct_links(workers, link), call);
        seconds += times.service;
        following += times.exchanges;
      }
      exchanges = std::max(exchanges, following);
    }
    longest = std::max(longest, seconds + static_cast<double>(exchanges) * link.latency);
  }
  if (known) {
    round.seconds = longest;
  }
  return round;
}

}  // namespace slackline
