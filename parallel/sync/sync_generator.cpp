#include <algorithm>
#include <array>
#include <map>

#include "parallel/sync/bucket_levels.h"
#include "parallel/sync/pass_units.h"
#include "parallel/sync/sync_groups.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;
using Unit = GradientBucket::Unit;
using schedule::Phase;
using schedule::Site;

class Generator {
 public:
  Generator(const std::vector<Parameter>& parameters, const RankPlan& rank)
      : rank_(rank), layout_(rank.sync), levels_(rank.sync) {
    const bool by_units = layout_.strategy.shares_passes();
    plan_.buckets = gradient_buckets(parameters,
                                     {.tied_embeddings = layout_.tied_table,
                                      .bucket_bytes = by_units ? 0 : layout_.bucket_bytes,
                                      .biases_apart = layout_.shares_memory(),
                                      .chunks = rank.slice.chunks});
    plan_.compute = layout_.shares_memory() ? layout_.compute : DType::f32;
    plan_.made = units_as_made(rank);
    if (layout_.strategy.parameters != Extent::none) {
      plan_.used = units_as_used(rank, false);
      plan_.used_in_evaluation = units_as_used(rank, true);
    }
  }

  [[nodiscard]] SyncPlan build(const std::vector<Parameter>& parameters) {
    add_places();
    for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
      add_gathers_before_use(i);
      if (plan_.buckets[i].trained) {
        add_sums_of_passes(i);
      }
    }
    // Sums are in the order in which their last gradients are made.
    std::vector<bool> goes_with_passes(plan_.buckets.size());
    for (const auto& [place, buckets] : buckets_by_last_gradient()) {
      for (const std::size_t bucket : buckets) {
        add_sums(bucket, SyncOp::Begin::gradients_made, plan_.made[place]);
        goes_with_passes[bucket] = true;
      }
    }
    add_further_sums(SyncOp::Begin::passes_end, {});
    for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
      if (plan_.buckets[i].trained && !goes_with_passes[i]) {
        add_sums(i, SyncOp::Begin::passes_end, {});
        add_further_sums(SyncOp::Begin::passes_end, {});
      }
    }
    // Gathers of sums wait for those between groups, and passes are not to wait for them.
    for (SyncOp& gather : gathered_) {
      gather.begin = SyncOp::Begin::passes_end;
      gather.unit.reset();
      add(gather);
    }
    // First layers first: they are read first.
    for (std::size_t i = plan_.buckets.size(); i-- > 0;) {
      if (plan_.buckets[i].trained) {
        add_gathers(i);
      }
    }
    add_pieces(parameters);
    return std::move(plan_);
  }

 private:
  void add_places() {
    std::array<std::size_t, 2> layers{};  // that are trained, and that are not
    for (const GradientBucket& bucket : plan_.buckets) {
      const DataStrategy strategy = levels_.strategy_of(bucket);
      BucketPlace& place = plan_.places.emplace_back();
      place.weights = levels_.share_of(bucket, strategy.parameters);
      place.gradients =
          bucket.trained ? levels_.share_of(bucket, strategy.gradients) : BucketShare();
      place.owned = {levels_.share_of(bucket, strategy.optimizer)[levels_.own_segment(bucket)]};
      const bool of_layer =
          bucket.kind == Kind::layers && bucket.units.front().first == ModelPart::layer;
      const std::size_t slot = slot_of(bucket, of_layer ? layers[bucket.trained ? 0 : 1]++ : 0);
      if (strategy.parameters != Extent::none) {
        place.weight_slot = slot;
      }
      if (strategy.gradients != Extent::none) {
        place.gradient_slot = slot;
      }
    }
  }

  // Neighbouring layers have different ones, so that one's weights arrive while the other works.
  // The ends of the model share one, for passes work on one of them at a time; positions, read
  // together with a tied table, have their own. So has what is not trained: a pass reads it beside
  // the rest of its layer.
  [[nodiscard]] std::size_t slot_of(const GradientBucket& bucket, std::size_t layer) const {
    constexpr std::size_t kSlots = 4;
    const std::size_t first = bucket.trained ? 0 : kSlots;
    if (bucket.kind == Kind::layers && bucket.units.front().first == ModelPart::layer) {
      return first + layer % 2;
    }
    return first + (bucket.kind == Kind::layers && layout_.tied_table ? 3 : 2);
  }

  // The units whose passes read a bucket's weights, or make its gradients.
  [[nodiscard]] std::vector<Unit> units_of(const GradientBucket& bucket) const {
    if (bucket.kind != Kind::table) {
      return bucket.units;
    }
    std::vector<Unit> units;
    if (rank_.slice.embedding()) {
      units.emplace_back(ModelPart::embedding, -1);
    }
    if (rank_.slice.head()) {
      units.emplace_back(ModelPart::head, -1);
    }
    return units;
  }

  // Buckets whose sums go with layers, by the unit, a place in the order in which units are made,
  // with which their gradients are complete. Those that leave a slot for a group's share are
  // complete a unit later.
  [[nodiscard]] std::map<std::size_t, std::vector<std::size_t>> buckets_by_last_gradient() const {
    std::map<Unit, std::size_t> places;
    for (std::size_t i = 0; i < plan_.made.size(); ++i) {
      places[plan_.made[i]] = i;
    }
    std::map<std::size_t, std::vector<std::size_t>> buckets;
    for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
      if (plan_.buckets[i].kind != Kind::layers || !plan_.buckets[i].trained) {
        continue;
      }
      std::size_t last = 0;
      for (const Unit& unit : plan_.buckets[i].units) {
        last = std::max(last, places.at(unit));
      }
      const std::size_t complete = last + (plan_.places[i].gradient_slot ? 1 : 0);
      if (complete < plan_.made.size()) {
        buckets[complete].push_back(i);
      }
    }
    return buckets;
  }

  // A group of one rank has nothing to exchange.
  void add(SyncOp op) {
    const Seat seat = seat_in(op.group, layout_);
    op.ranks = seat.ranks;
    op.rank = seat.rank;
    op.hierarchy = hierarchy_over(op.group, layout_);
    if (op.ranks > 1) {
      plan_.ops.push_back(op);
    }
  }

  // The gathers that undo steps, in the order in which they run.
  void add_gathers_of(SyncOp op, const std::vector<SyncGroup>& groups) {
    std::vector<SyncOp> gathers;
    for (const SyncGroup group : groups) {
      op.group = group;
      gathers.push_back(op);
      op.range = levels_.own_slice(op.range, group);
    }
    for (auto gather = gathers.rbegin(); gather != gathers.rend(); ++gather) {
      add(*gather);
    }
  }

  void add_gathers_before_use(std::size_t index) {
    const GradientBucket& bucket = plan_.buckets[index];
    if (!plan_.places[index].weight_slot) {
      return;
    }
    for (const Unit& unit : units_of(bucket)) {
      for (const Slice& segment : levels_.segments(bucket)) {
        add_gathers_of({.kind = SyncOp::Kind::all_gather,
                        .state = SyncOp::State::weights,
                        .bucket = index,
                        .range = segment,
                        .begin = SyncOp::Begin::before_use,
                        .unit = unit,
                        .members = members_of_use(unit)},
                       levels_.steps(bucket, Extent::none, levels_.strategy_of(bucket).parameters));
      }
    }
  }

  // The sums that steps are; `op` has their elements, and then what they leave of those.
  [[nodiscard]] std::vector<SyncOp> reductions(SyncOp& op,
                                               const std::vector<SyncGroup>& groups) const {
    std::vector<SyncOp> sums;
    for (const SyncGroup group : groups) {
      op.kind = SyncOp::Kind::reduce_scatter;
      op.group = group;
      op.order = order_over(group, layout_);
      sums.push_back(op);
      op.range = levels_.own_slice(op.range, group);
    }
    return sums;
  }

  void add_sums_of_passes(std::size_t index) {
    const GradientBucket& bucket = plan_.buckets[index];
    if (!plan_.places[index].gradient_slot) {
      return;
    }
    for (const Unit& unit : units_of(bucket)) {
      for (const Slice& segment : levels_.segments(bucket)) {
        SyncOp op{
            .bucket = index, .range = segment, .begin = SyncOp::Begin::pass_made, .unit = unit};
        std::vector<SyncOp> sums = reductions(
            op, levels_.steps(bucket, Extent::none, levels_.strategy_of(bucket).gradients));
        // A table's two gradients go to two shares.
        if (bucket.kind != Kind::table && ends_in_passes(bucket)) {
          let_be_coded(bucket, sums);
        }
        std::ranges::for_each(sums, [&](const SyncOp& sum) { add(sum); });
      }
    }
  }

  // Whether what passes leave needs no further sum.
  [[nodiscard]] bool ends_in_passes(const GradientBucket& bucket) const {
    return levels_.strategy_of(bucket).gradients == Extent::global ||
           seat_in(SyncGroup::across_groups, layout_).ranks == 1;
  }

  // The last of sums that follow each other goes furthest; groups of one rank add nothing, and
  // neither does a gather of sums.
  void let_be_coded(const GradientBucket& bucket, std::vector<SyncOp>& sums) const {
    const auto last = std::find_if(sums.rbegin(), sums.rend(), [&](const SyncOp& sum) {
      return sum.kind != SyncOp::Kind::all_gather && seat_in(sum.group, layout_).ranks > 1;
    });
    if (last != sums.rend()) {
      last->may_be_coded = true;
      last->members = members_of(bucket);
    }
  }

  // What comes before ranks that have the same parameters add theirs.
  void add_first_sum(std::size_t index, SyncOp op) {
    const GradientBucket& bucket = plan_.buckets[index];
    if (bucket.kind == Kind::norms && layout_.sequence_parallel) {
      // Each tensor rank has seen its rows only.
      op.group = SyncGroup::tensor;
      add(op);
    }
    if (levels_.is_on_two_stages(bucket) && !levels_.is_joined(bucket)) {
      op.kind = levels_.is_halved(bucket) ? SyncOp::Kind::reduce_scatter : SyncOp::Kind::all_reduce;
      op.group = SyncGroup::table_pair;
      op.members =
          levels_.is_halved(bucket) ? std::nullopt : std::make_optional(members_of(bucket));
      add(op);
    }
  }

  // The sums at a step's end of what its passes leave. Of several steps the first is added, and
  // the others kept until it is their turn.
  void add_sums(std::size_t index, SyncOp::Begin begin, std::optional<Unit> unit) {
    const GradientBucket& bucket = plan_.buckets[index];
    const DataStrategy strategy = levels_.strategy_of(bucket);
    const bool whole = strategy.gradients == Extent::none;
    add_further_sums(begin, unit);
    SyncOp op{.bucket = index,
              .memory = whole ? SyncOp::Memory::whole : SyncOp::Memory::share,
              .range = {0, whole ? bucket.count : elements_of(plan_.places[index].gradients)},
              .begin = begin,
              .unit = unit};
    add_first_sum(index, op);
    if (levels_.is_halved(bucket)) {
      op.range = levels_.own_slice(op.range, SyncGroup::table_pair);
    }
    std::vector<SyncOp> sums =
        reductions(op, levels_.steps(bucket, strategy.gradients, strategy.optimizer));
    if (strategy.optimizer != Extent::global) {
      add_whole_sum(bucket, strategy, op, sums);
    }
    if (!levels_.is_halved(bucket)) {
      let_be_coded(bucket, sums);
    }
    for (const SyncOp& sum : sums) {
      if (sum.kind == SyncOp::Kind::all_gather) {
        gathered_.push_back(sum);
      } else {
        &sum == &sums.front() ? add(sum) : further_.push_back(sum);
      }
    }
  }

  // Adds up a bucket for ranks that all need the sum. By levels each rank of a group adds its part
  // up with the other groups, and gathers the others' parts.
  void add_whole_sum(const GradientBucket& bucket,
                     const DataStrategy& strategy,
                     SyncOp op,
                     std::vector<SyncOp>& sums) const {
    const bool of_all = strategy.optimizer == Extent::none;
    const bool in_parts = of_all && layout_.by_levels && levels_.goes_by_levels(bucket);
    SyncOp in_group = op;
    if (in_parts) {
      in_group.kind = SyncOp::Kind::reduce_scatter;
      in_group.group = SyncGroup::group;
      in_group.order = order_over(SyncGroup::group, layout_);
      sums.push_back(in_group);
      op.range = levels_.own_slice(op.range, SyncGroup::group);
    }
    op.kind = SyncOp::Kind::all_reduce;
    op.group = of_all && !in_parts ? levels_.all_ranks(bucket) : SyncGroup::across_groups;
    op.order = order_over(op.group, layout_);
    sums.push_back(op);
    if (in_parts) {
      in_group.kind = SyncOp::Kind::all_gather;
      in_group.order = {};
      sums.push_back(in_group);
    }
  }

  void add_further_sums(SyncOp::Begin begin, std::optional<Unit> unit) {
    for (SyncOp& op : further_) {
      op.begin = begin;
      op.unit = unit;
      add(op);
    }
    further_.clear();
  }

  // What an update leaves on its owners goes where ranks keep it.
  void add_gathers(std::size_t index) {
    const GradientBucket& bucket = plan_.buckets[index];
    const DataStrategy strategy = levels_.strategy_of(bucket);
    const bool whole = strategy.parameters == Extent::none;
    const BucketShare& share = plan_.places[index].weights;
    SyncOp op{.kind = SyncOp::Kind::all_gather,
              .state = SyncOp::State::weights,
              .bucket = index,
              .memory = whole ? SyncOp::Memory::whole : SyncOp::Memory::share,
              .range = {0, whole ? bucket.count : elements_of(share)},
              .begin = SyncOp::Begin::update_end,
              .members = members_of_weights(bucket)};
    const Slice all = op.range;
    if (levels_.is_halved(bucket)) {
      op.range = levels_.own_slice(all, SyncGroup::table_pair);
    }
    add_gathers_of(op, levels_.steps(bucket, strategy.parameters, strategy.optimizer));
    if (levels_.is_halved(bucket)) {
      op.range = all;
      op.group = SyncGroup::table_pair;
      add(op);
    }
  }

  [[nodiscard]] schedule::TransferClass members_of(const GradientBucket& bucket) const {
    return gradient_class(*bucket.holds.back(), bucket, rank_);
  }

  // The weights of a table on two stages are of its class, as its gradients are.
  [[nodiscard]] schedule::TransferClass members_of_weights(const GradientBucket& bucket) const {
    const schedule::TransferClass gradients = members_of(bucket);
    if (levels_.is_joined(bucket)) {
      return gradients;
    }
    const bool table = bucket.kind == Kind::table;  // with each of its ends
    const int last = static_cast<int>(rank_.slice.chunks.size()) - 1;
    const int stage = table && layout_.place.pipeline > 0
                          ? last * layout_.pipeline_size + layout_.place.pipeline
                          : gradients.stage;
    return {.site = Site::parameter_gather, .stage = stage, .phase = Phase::step};
  }

  // Weights that passes gather: of the virtual stage that reads them, whichever pass it is.
  [[nodiscard]] schedule::TransferClass members_of_use(const Unit& unit) const {
    const auto chunk = static_cast<int>(chunk_of(unit, rank_.slice.chunks));
    return {.site = Site::parameter_gather,
            .stage = chunk * layout_.pipeline_size + layout_.place.pipeline,
            .phase = Phase::steady};
  }

  // Data ranks that update the same elements share counting and writing them.
  [[nodiscard]] Seat twins(const GradientBucket& bucket) const {
    switch (levels_.strategy_of(bucket).optimizer) {
      case Extent::none:
        return seat_in(SyncGroup::data, layout_);
      case Extent::group:
        return seat_in(SyncGroup::across_groups, layout_);
      case Extent::global:
        break;
    }
    return {};
  }

  void add_pieces(const std::vector<Parameter>& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      const std::size_t index = bucket_of(parameter, plan_.buckets);
      const GradientBucket& bucket = plan_.buckets[index];
      const Seat same = twins(bucket);
      const Slice own = plan_.places[index].owned.front();
      const std::size_t first = parameter.first_element - bucket.first;
      const std::size_t end = first + parameter.shard.shape.num_elements();
      OptimizerPiece piece{.parameter = &parameter,
                           .range = {std::clamp(own.begin, first, end) - first,
                                     std::clamp(own.end, first, end) - first},
                           .twins = same.ranks,
                           .twin = same.rank};
      const bool has_copies = bucket.kind == Kind::table && layout_.table_on_two_stages;
      const bool is_copy = has_copies && !levels_.is_first_copy() && !levels_.is_halved(bucket) &&
                           !(levels_.is_joined(bucket) && layout_.strategy.shares_updates());
      // Tensor rank 0 has what is not cut as well.
      piece.is_copy =
          is_copy || (parameter.spec.cut == TensorCut::none && layout_.place.tensor != 0);
      piece.counted = parameter.spec.trained && !piece.is_copy && same.rank == 0;
      piece.saved = !piece.is_copy && same.rank == static_cast<int>(i) % same.ranks;
      if (piece.range.count() > 0) {
        plan_.owned.push_back(piece);
      }
    }
  }

  const RankPlan& rank_;
  const SyncLayout& layout_;
  BucketLevels levels_;
  SyncPlan plan_;
  std::vector<SyncOp> further_;   // sums that follow those last added
  std::vector<SyncOp> gathered_;  // gathers of sums
};

}  // namespace

SyncPlan make_sync_plan(const std::vector<Parameter>& parameters, const RankPlan& rank) {
  return Generator(parameters, rank).build(parameters);
}

}  // namespace slackline
