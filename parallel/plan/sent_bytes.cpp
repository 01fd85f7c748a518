#include "parallel/plan/sent_bytes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "compress/codec_bytes.h"
#include "core/comm/collective_bytes.h"
#include "model/cost/tensor_sums.h"
#include "parallel/mesh/executor_bytes.h"
#include "parallel/plan/bucket_compression.h"
#include "parallel/plan/coded_gather.h"
#include "parallel/plan/pipeline_boundaries.h"

namespace slackline {

namespace {

// The own ranks in an op's group of all data ranks at a place.
std::vector<int> ranks_at_place(const SyncOp& op, const ParallelConfig& mesh) {
  std::vector<int> ranks;
  for (int data = 0; data < mesh.data; ++data) {
    switch (op.group) {
      case SyncGroup::data:
        ranks.push_back(data);
        break;
      case SyncGroup::group:
        ranks.push_back(data % mesh.data_ranks_of_group());
        break;
      case SyncGroup::across_groups:
        ranks.push_back(data / mesh.data_ranks_of_group());
        break;
      case SyncGroup::table:
        ranks.push_back(2 * data + op.rank % 2);
        break;
      case SyncGroup::tensor:
      case SyncGroup::table_pair:
        ranks.push_back(op.rank);
        break;
    }
  }
  return ranks;
}

using BytesOfCall = std::size_t (*)(const CollectiveCall& call, int rank, int size);

std::size_t added_up(BytesOfCall bytes_of,
                     const std::vector<CollectiveCall>& calls,
                     const std::vector<int>& ranks,
                     int size) {
  std::size_t bytes = 0;
  for (const CollectiveCall& call : calls) {
    for (const int rank : ranks) {
      bytes += bytes_of(call, rank, size);
    }
  }
  return bytes;
}

// An op of the ranks at a place, in the list of the first of them.
struct PlacedOp {
  const MeshLists& lists;
  MeshPlace place{};
  std::size_t number = 0;

  [[nodiscard]] const RankSync& rank(int share) const {
    return lists.at(place.pipeline, place.tensor, share);
  }

  [[nodiscard]] const SyncOp& op(int share) const { return rank(share).plan.ops[number]; }

  // Ranks of a group exchange parts of their own with other groups, and where data ranks share a
  // table out each its own with the other stage.
  [[nodiscard]] int num_shares() const {
    const ParallelConfig& mesh = lists.job().parallel;
    if (op(0).group == SyncGroup::table_pair && op(0).memory == SyncOp::Memory::share) {
      return mesh.data;
    }
    return op(0).group == SyncGroup::across_groups ? mesh.data_ranks_of_group() : 1;
  }

  // Whether these are equally long: the last is the shortest.
  [[nodiscard]] bool shares_are_alike() const {
    return op(num_shares() - 1).range.count() == op(0).range.count();
  }
};

// Whether the plan has a codec for ops like this one. Its bucket, which takes longer to look at,
// may still travel plain.
bool may_code(const CompressionPlan& plan, const SyncOp& op) {
  using schedule::Site;
  if (op.begin == SyncOp::Begin::before_use) {
    return plan.compresses_any_of(Site::parameter_gather);
  }
  return op.may_be_coded &&
         (plan.compresses_any_of(Site::data_gradient) || plan.compresses_any_of(Site::embedding));
}

// Whether no op before it in the list serves the same use of the bucket.
bool is_first_of_use(const SyncOp& op, const SyncPlan& plan) {
  return &op == &*std::ranges::find_if(plan.ops, [&](const SyncOp& other) {
    return other.bucket == op.bucket && other.begin == op.begin && other.unit == op.unit;
  });
}

// The bytes of an op that all ranks at a place send under a plan.
struct PlacedTraffic {
  std::size_t sent = 0;
  std::size_t across = 0;
  std::vector<CodedMessage> coded{};  // on one rank: ranks of a group code at the same time
};

PlacedTraffic placed_traffic(const PlacedOp& placed,
                             std::size_t times,
                             const CompressionPlan& plan) {
  const SyncOp& first = placed.op(0);
  // Codecs of sums see which rows a share has, all else only how long it is.
  const bool sees_rows = first.may_be_coded && may_code(plan, first);
  const int shares = placed.shares_are_alike() && !sees_rows ? 1 : placed.num_shares();
  const std::vector<int> at_place = ranks_at_place(first, placed.lists.job().parallel);
  PlacedTraffic all;
  for (int share = 0; share < shares; ++share) {
    std::vector<int> ranks;  // all that have the share
    for (auto data = static_cast<std::size_t>(share); data < at_place.size();
         data += static_cast<std::size_t>(shares)) {
      ranks.push_back(at_place[data]);
    }
    OpTraffic own = traffic_of(placed.op(share), placed.rank(share), plan);
    all.sent += times * added_up(bytes_sent_by, own.calls, ranks, first.ranks);
    all.across += times * added_up(bytes_sent_across_by, own.calls, ranks, first.ranks);
    if (all.coded.empty()) {
      all.coded = std::move(own.coded);
    }
  }
  return all;
}

// Exchanges of layers over tensor ranks, as one row.
SentBytes tensor_bytes(const MeshLists& lists, const MeshPlace& place) {
  const MeshJob& job = lists.job();
  const RankPlan& rank = lists.at(place.pipeline).rank;
  std::size_t bytes = 0;
  for (const ChunkSlice& chunk : rank.executor.chunks) {
    for (const TensorExchange& exchange :
         chunk_exchanges(job.model, chunk_options(rank.executor, chunk))) {
      bytes += bytes_sent_by(exchange.call(), place.tensor, job.parallel.tensor);
    }
  }
  bytes *= static_cast<std::size_t>(job.parallel.data * job.num_micro_batches);
  return {.axis = kTensorAxis, .raw = bytes, .sent = bytes};
}

void add(const std::vector<SentBytes>& rows, StepTraffic::Axes& traffic) {
  for (const SentBytes& row : rows) {
    traffic.raw[row.axis] += row.raw;
    traffic.sent[row.axis] += row.sent;
    traffic.across[row.axis] += row.across;
  }
}

}  // namespace

std::vector<CodedMessage> messages_of(const CodedBucket& coded) {
  std::vector<CodedMessage> messages;
  for (const CodedSum& sum : coded.sums) {
    const bool is_cut = !sum.owners.empty();
    CodedMessage& message = messages.emplace_back();
    message.codec = setting_of_calls(sum.setting);
    message.shape = message_shape(sum);
    message.is_added = true;
    message.is_cut = is_cut;
    message.frames = adds(sum.setting.kind) || is_cut ? 1 : sum.ranks;
    if (sum.two_shot) {  // its rows of the sum are coded anew, and all of them decoded
      message.encoded += 1.0 / sum.ranks;
      message.frames += 1;
      message.exchanges += 1;
    }
  }
  return messages;
}

std::vector<CodedMessage> messages_of(const CodedGather& coded) {
  std::vector<CodedMessage> messages;
  for (const CodedGather::Segment& segment : coded.segments) {
    messages.push_back({.codec = coded.setting,
                        .shape = {static_cast<std::int64_t>(coded.longest_share())},
                        .frames = static_cast<int>(segment.num_frames())});
  }
  return messages;
}

OpTraffic traffic_of(const SyncOp& op, const RankSync& rank, const CompressionPlan& plan) {
  OpTraffic plain{.calls = {plain_call(op, rank.plan)}};
  if (!may_code(plan, op)) {
    return plain;
  }
  if (op.begin == SyncOp::Begin::before_use) {
    const std::optional<CodedGather> gather = coded_gather(rank.plan, op.bucket, plan);
    if (!gather) {
      return plain;
    }
    OpTraffic coded{.calls = {call_of(*gather, op)}};
    if (is_first_of_use(op, rank.plan)) {
      coded.coded = messages_of(*gather);
    }
    return coded;
  }
  const CodedBucket coded = coded_bucket(op, rank.plan, rank.rank, plan);
  if (coded.sums.empty()) {
    return plain;
  }
  return {.calls = calls_of(coded), .coded = messages_of(coded)};
}

std::vector<SentBytes> sync_bytes(const MeshLists& lists,
                                  const CompressionPlan& plan,
                                  const MeshPlace& place) {
  const RankSync& rank = lists.at(place.pipeline, place.tensor);
  std::vector<SentBytes> rows;
  std::set<std::size_t> gathered;
  for (std::size_t i = 0; i < rank.plan.ops.size(); ++i) {
    const SyncOp& op = rank.plan.ops[i];
    const PlacedOp placed{.lists = lists, .place = place, .number = i};
    const std::size_t times = times_of(op, rank.plan, lists.job().num_micro_batches);
    const PlacedTraffic plain = placed_traffic(placed, times, {});
    PlacedTraffic sent = may_code(plan, op) ? placed_traffic(placed, times, plan) : plain;
    SentBytes& row = rows.emplace_back();
    row.axis = axis_of(op.group);
    row.members = op.members;
    row.gradients = op.state == SyncOp::State::gradients;
    row.raw = plain.sent;
    row.sent = sent.sent;
    row.across = sent.across;
    // A table that both ends code at the same time, or that two units gather, is listed once.
    const bool second_copy =
        op.members && op.members->site == schedule::Site::embedding && place.pipeline > 0;
    const bool again = op.begin == SyncOp::Begin::before_use && !sent.coded.empty() &&
                       !gathered.insert(op.bucket).second;
    if (!second_copy && !again) {
      row.coded = std::move(sent.coded);
    }
  }
  return rows;
}

std::vector<SentBytes> pipeline_bytes(const MeshLists& lists,
                                      const CompressionPlan& plan,
                                      const MeshPlace& place) {
  const MeshJob& job = lists.job();
  const RankPlan& rank = lists.at(place.pipeline).rank;
  const MatrixShape share = boundary_share(job);
  const std::size_t raw = share.num_elements() * size_of(job.precision);
  const auto data = static_cast<std::size_t>(job.parallel.data);
  const std::vector<schedule::Op>& ops =
      rank.executor.schedule().ranks[static_cast<std::size_t>(place.pipeline)];
  const std::vector<schedule::Phase> phases = schedule::phases_of(ops);
  std::map<schedule::TransferClass, std::size_t> messages;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (schedule::is_send(ops[i].kind)) {
      const schedule::TransferId id = schedule::id_of_send(ops[i]);
      ++messages[{.site = id.site, .stage = id.stage, .phase = phases[i]}];
    }
  }
  std::vector<SentBytes> rows;
  rows.reserve(messages.size());
  for (const auto& [members, count] : messages) {
    SentBytes& row = rows.emplace_back();
    row.axis = kPipelineAxis;
    row.members = members;
    row.raw = count * data * raw;
    row.sent = row.raw;
    const CodecSetting* const codec = plan.setting_of(members);
    if (codec != nullptr && pays_at_boundary(*codec, share, job.precision)) {
      row.sent = count * data * frame_bytes(*codec, {{.name = "", .shape = share}});
      row.coded.push_back({.codec = *codec, .shape = {share.rows, share.columns}});
    }
  }
  return rows;
}

StepTraffic step_traffic(const MeshLists& lists, const CompressionPlan& plan) {
  const ParallelConfig& mesh = lists.job().parallel;
  StepTraffic traffic;
  for (int place = 0; place < mesh.pipeline; ++place) {
    StepTraffic::Axes& own = traffic.places.emplace_back();
    const std::vector<SentBytes> messages = pipeline_bytes(lists, plan, {.pipeline = place});
    for (int tensor = 0; tensor < mesh.tensor; ++tensor) {  // ranks of a place send alike messages
      const MeshPlace at{.tensor = tensor, .pipeline = place};
      for (const std::vector<SentBytes>& rows :
           {sync_bytes(lists, plan, at), messages, {tensor_bytes(lists, at)}}) {
        add(rows, own);
        add(rows, traffic.all);
      }
    }
  }
  return traffic;
}

std::vector<double> saved_axis_bytes(const MeshJob& job, const CompressionPlan& plan) {
  const StepTraffic::Axes all = step_traffic(MeshLists(job), plan).all;
  std::vector<double> saved(all.raw.begin(), all.raw.end());
  std::ranges::transform(saved, all.sent, saved.begin(), std::minus<double>());
  return saved;
}

}  // namespace slackline
