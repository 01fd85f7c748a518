#include "parallel/predict/data_axis.h"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/mesh/stage_split.h"
#include "parallel/plan/class_costs.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/predict/axis_links.h"
#include "parallel/predict/bucket_times.h"
#include "parallel/predict/collective_times.h"
#include "parallel/schedule/schedule_traits.h"

namespace slackline {

namespace {

using schedule::ChunkCosts;
using schedule::Seconds;
using Begin = SyncOp::Begin;
using Unit = GradientBucket::Unit;

// Shorter than anything measured: a transfer that takes no time still has a place in the timeline.
constexpr Seconds kNoTime{1e-12};

// What follows each other on a bucket's links.
struct OpTimes {
  CollectiveTimes all{.exchanges = 0};
  int sum_exchanges = 0;  // where each is a whole sum over its ranks
  Seconds longest{};      // service of one call
  Seconds coding{};       // in passes, before and behind what travels
  int end = -1;           // of that call, as in schedule::Bucket
};

class DataAxisBuilder {
 public:
  DataAxisBuilder(const DataAxis& axis, schedule::CostModel& model)
      : axis_(axis), lists_(*axis.lists), model_(model) {}

  void add() {
    const ParallelConfig& mesh = lists_.job().parallel;
    if (axis_.links == nullptr && mesh.data > 1 && mesh.has_steps()) {
      return;
    }
    const std::vector<ChunkSlice> stages = split_layers(lists_.job().model, mesh);
    for (int stage = 0; stage < num_stages() && mesh.data_strategy.shares_passes(); ++stage) {
      add_passes(stage, stages[static_cast<std::size_t>(stage)]);
    }
    for (int place = 0; place < mesh.pipeline; ++place) {
      add_step_end(place);
    }
    for (int stage = 0; stage < num_stages() && axis_.links == nullptr; ++stage) {
      spread(stage, CostKind::data_reduction, chunk(stage).data_reduction);
      spread(stage, CostKind::parameter_gather, chunk(stage).parameter_gather);
    }
  }

 private:
  [[nodiscard]] CollectiveLinks links_of(const SyncOp& op, int place) const {
    const ParallelConfig& mesh = lists_.job().parallel;
    const auto over = [&](const schedule::Link& link) { return direct_links(op.ranks, link); };
    if (axis_.links == nullptr) {
      return over({});
    }
    const Cluster& cluster = *axis_.links;
    switch (op.group) {
      case SyncGroup::group:
        return over(group_link(mesh, cluster, mesh.num_groups() == 1 ? "data" : kGroupAxis, place));
      case SyncGroup::across_groups:
        return over(group_link(mesh, cluster, kAcrossGroupsAxis, place));
      case SyncGroup::table_pair:
        return over(table_link(mesh, cluster));
      case SyncGroup::table:
        return table_links(mesh, cluster);
      case SyncGroup::tensor:
        return over(group_link(mesh, cluster, "tensor", place));
      case SyncGroup::data:
        break;
    }
    return data_links(mesh, cluster, place);
  }

  void add_op(const SyncOp& op, int place, OpTimes& times) {
    // Passes of all stages go on at the same time, and so do their transfers.
    const bool of_pass = op.begin == Begin::before_use || op.begin == Begin::pass_made;
    const int at = of_pass ? kEveryPlace : place;
    const auto [found, is_new] = links_.try_emplace({op.group, at});
    if (is_new) {
      found->second = links_of(op, at);
    }
    const CollectiveLinks& links = found->second;
    const RankSync& rank = lists_.at(place);
    // The timeline prices codecs of sums at the step's end by their classes.
    const OpTraffic traffic = of_pass ? traffic_of(op, rank, *axis_.plan)
                                      : OpTraffic{.calls = {plain_call(op, rank.plan)}};
    const auto coding = codec_seconds_or_assumed(traffic.coded, *axis_.costs);
    times.coding += coding.encode + coding.decode;
    for (const CollectiveCall& call : traffic.calls) {
      const CollectiveTimes own = times_of(links, call);
      // Of several calls the longest says what they wait for.
      const bool is_first = times.all.exchanges == 0;
      if (is_first || times.longest < own.service) {
        times.longest = own.service;
        times.end = end_of(links, call);
      }
      times.all = is_first ? own : sum_of(times.all, own);
      CollectiveCall sum = call;
      sum.kind = TransferRecord::Kind::all_reduce;
      times.sum_exchanges += times_of(links, sum).exchanges;
    }
  }

  // All ops of a unit that begin so.
  [[nodiscard]] OpTimes times_of_unit(Begin begin, const Unit& unit, int place) {
    OpTimes times;
    for (const SyncOp& op : lists_.at(place).plan.ops) {
      if (op.begin == begin && op.unit == unit) {
        add_op(op, place, times);
      }
    }
    return times;
  }

  // What a pass of so much computing waits for transfers that go on meanwhile, one unit's. Each is
  // coded and sent by the time that the next one's slot is needed; where codecs have no core of
  // their own, both pass and transfer wait for them.
  [[nodiscard]] Seconds waits(const OpTimes& times, Seconds computing) const {
    return model_.codecs_take_compute
               ? times.coding + std::max(Seconds{}, times.all.seconds() - computing)
               : std::max(Seconds{}, times.all.seconds() + times.coding - computing);
  }

  static OpTimes together(const OpTimes& a, const OpTimes& b) {
    return {.all = {.service = a.all.seconds() + b.all.seconds(), .exchanges = 0},
            .coding = a.coding + b.coding};
  }

  void add_passes(int stage, const ChunkSlice& slice) {
    const int place = stage % lists_.job().parallel.pipeline;
    ChunkCosts& chunk = this->chunk(stage);
    const bool splits = schedule::traits_of(lists_.job().parallel.schedule).splits_backward;
    const PartShares shares = part_shares(lists_.job().model, slice);
    const Seconds forward = shares.layer_forward * chunk.forward;
    const Seconds input =
        (splits ? shares.layer_input : shares.layer_backward) * chunk.backward_input;
    const Seconds weight = (1.0 / slice.num_layers()) * chunk.backward_weight;
    for (int layer = slice.first_layer; layer < slice.last_layer; ++layer) {
      const Unit unit{ModelPart::layer, layer};
      const OpTimes gather = times_of_unit(Begin::before_use, unit, place);
      const OpTimes reduction = times_of_unit(Begin::pass_made, unit, place);
      chunk.forward += waits(gather, forward);
      chunk.backward_input += waits(splits ? gather : together(gather, reduction), input);
      chunk.backward_weight += splits ? waits(reduction, weight) : Seconds{};
    }
    if (slice.embedding) {
      const Unit unit{ModelPart::embedding, -1};
      chunk.forward += waits(times_of_unit(Begin::before_use, unit, place), forward);
      chunk.backward_input += waits(times_of_unit(Begin::pass_made, unit, place), {});
    }
    if (slice.head) {
      const Unit unit{ModelPart::head, -1};
      // Its weights are asked for as the last layer's forward pass begins.
      chunk.backward_input += waits(times_of_unit(Begin::before_use, unit, place), forward) +
                              waits(times_of_unit(Begin::pass_made, unit, place), input);
    }
  }

  void add_step_end(int place) {
    const RankSync& rank = lists_.at(place);
    const std::vector<PlacedBucket> placed = placed_buckets(lists_, place);
    std::size_t next = 0;
    for (std::size_t i = 0; i < rank.plan.buckets.size(); ++i) {
      if (!rank.plan.buckets[i].trained) {
        continue;
      }
      const bool is_cut_table = rank.plan.buckets[i].kind == GradientBucket::Kind::table &&
                                lists_.job().parallel.pipeline > 1;
      OpTimes before;
      OpTimes sums;
      OpTimes gathers;
      for (const SyncOp& op : rank.plan.ops) {
        const bool at_end = op.begin == Begin::gradients_made || op.begin == Begin::passes_end;
        if (op.bucket == i && op.group != SyncGroup::tensor && at_end) {
          add_op(op, place, op.may_be_coded || is_cut_table ? sums : before);
        } else if (op.bucket == i && op.begin == Begin::update_end) {
          add_op(op, place, gathers);
        }
      }
      if (is_cut_table) {
        add_table(rank.rank.slice, sums, gathers);
        continue;
      }
      add_bucket(placed[next++], before, sums, gathers);
    }
  }

  // `sums` have the one that codecs may sit on, `before` what it waits for.
  void add_bucket(const PlacedBucket& bucket,
                  const OpTimes& before,
                  const OpTimes& sums,
                  const OpTimes& gathers) {
    ChunkCosts& chunk = this->chunk(bucket.stage);
    if (sums.all.exchanges > 0) {
      chunk.data_reduction.push_back({.at = bucket.reduce_at,
                                      .before = before.all.seconds(),
                                      .seconds = sums.all.service,
                                      .exchanges = {.latency = sums.all.latency,
                                                    .plain = sums.all.exchanges,
                                                    .sum = sums.sum_exchanges},
                                      .end = shared_end(sums),
                                      .table = bucket.table,
                                      .tail = bucket.tail});
    }
    if (gathers.all.exchanges > 0) {
      chunk.parameter_gather.insert(
          chunk.parameter_gather.begin(),
          {.at = bucket.gather_at,
           .seconds = gathers.all.service,
           .exchanges = {.latency = gathers.all.latency, .plain = gathers.all.exchanges},
           .end = shared_end(gathers)});
    }
  }

  [[nodiscard]] int shared_end(const OpTimes& times) const {
    return lists_.job().parallel.pipeline > 1 ? times.end : -1;
  }

  // Both ends do the same at the same time; the longer one counts.
  void add_table(const ModelSlice& slice, const OpTimes& sums, const OpTimes& gathers) {
    if (axis_.links == nullptr) {
      model_.embedding_sync = axis_.costs->of_stage(0, CostKind::embedding_sync).value_or(kNoTime);
      return;
    }
    if (const Seconds service = std::max(kNoTime, sums.all.service);
        model_.embedding_sync < service) {
      model_.embedding_sync = service;
      model_.embedding_exchanges = {
          .latency = sums.all.latency, .plain = sums.all.exchanges, .sum = sums.sum_exchanges};
    }
    if (gathers.all.exchanges == 0) {
      return;
    }
    const schedule::Bucket gather{
        .seconds = gathers.all.service,
        .exchanges = {.latency = gathers.all.latency, .plain = gathers.all.exchanges}};
    ChunkCosts& end = slice.embedding() ? model_.chunks.front() : model_.chunks.back();
    end.parameter_gather.insert(
        slice.embedding() ? end.parameter_gather.begin() : end.parameter_gather.end(), gather);
  }

  // Gives a stage's buckets equal parts of what was measured of them together.
  void spread(int stage, CostKind kind, std::vector<schedule::Bucket>& buckets) const {
    const auto seconds = axis_.costs->of_stage(stage, kind);
    if (!axis_.stages_fit || !seconds) {
      return;
    }
    for (schedule::Bucket& bucket : buckets) {
      bucket.seconds = (1.0 / static_cast<double>(buckets.size())) * *seconds;
    }
  }

  [[nodiscard]] int num_stages() const { return static_cast<int>(model_.chunks.size()); }

  [[nodiscard]] ChunkCosts& chunk(int stage) {
    return model_.chunks[static_cast<std::size_t>(stage)];
  }

  const DataAxis& axis_;
  const MeshLists& lists_;
  schedule::CostModel& model_;
  std::map<std::pair<SyncGroup, int>, CollectiveLinks> links_{};
};

}  // namespace

void add_data_axis(const DataAxis& axis, schedule::CostModel& model) {
  DataAxisBuilder(axis, model).add();
}

}  // namespace slackline
