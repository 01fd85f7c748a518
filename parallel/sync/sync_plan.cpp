#include "parallel/sync/sync_plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/check.h"
#include "parallel/plan/step_waits.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;
using Unit = GradientBucket::Unit;
using schedule::Op;
using schedule::OpKind;
using schedule::Phase;
using schedule::Site;

bool is_fused(const SyncLayout& layout) {
  return layout.table_on_two_stages && layout.embedding_sync == EmbeddingSync::fused;
}

// Ranks and own rank of a group.
struct Seat {
  int ranks = 1;
  int rank = 0;
};

Seat seat_in(SyncGroup group, const SyncLayout& layout) {
  const MeshPlace& at = layout.place;
  const int copy = at.pipeline == 0 ? 0 : 1;  // of a table on two stages: copies alternate
  switch (group) {
    case SyncGroup::tensor:
      return {layout.tensor_size, at.tensor};
    case SyncGroup::data:
      return {layout.data_size, at.data};
    case SyncGroup::table:
      return {2 * layout.data_size, 2 * at.data + copy};
    case SyncGroup::table_pair:
      break;
  }
  return {2, copy};
}

void add_units(const ChunkSlice& chunk, OpKind kind, bool later, std::vector<Unit>& made) {
  const bool weights = kind == OpKind::backward_weight;
  if (!weights && chunk.head) {
    made.emplace_back(ModelPart::head, -1);
  }
  for (int layer = chunk.last_layer; weights == later && layer-- > chunk.first_layer;) {
    made.emplace_back(ModelPart::layer, layer);
  }
  if (!weights && chunk.embedding) {
    made.emplace_back(ModelPart::embedding, -1);
  }
}

std::vector<Unit> units_as_made(const RankPlan& rank) {
  const schedule::Schedule& schedule = rank.executor.schedule;
  const bool later = rank.executor.stage.weight_gradients == Stage::WeightGradients::later;
  std::vector<Unit> made;
  for (const Op& op : schedule.ranks[static_cast<std::size_t>(rank.sync.place.pipeline)]) {
    const bool makes_gradients = op.kind == OpKind::backward || op.kind == OpKind::backward_input ||
                                 op.kind == OpKind::backward_weight;
    if (makes_gradients && op.micro_batch + 1 == schedule.num_micro_batches) {
      const auto chunk = static_cast<std::size_t>(op.chunk / schedule.num_ranks);
      add_units(rank.slice.chunks[chunk], op.kind, later, made);
    }
  }
  return made;
}

int chunk_of(const Parameter& parameter, const std::vector<ChunkSlice>& chunks) {
  const auto holds = [&](const ChunkSlice& chunk) { return chunk.has_part_of(parameter.spec); };
  return static_cast<int>(std::find_if(chunks.begin(), chunks.end(), holds) - chunks.begin());
}

// Whether it goes when the chunk's last gradients are made.
bool ends_with(const ChunkSlice& chunk, const GradientBucket& bucket) {
  return std::any_of(bucket.units.begin(), bucket.units.end(), [&](const Unit& unit) {
    const auto& [part, layer] = unit;
    switch (part) {
      case ModelPart::embedding:
        return chunk.embedding;
      case ModelPart::head:
        return chunk.head && chunk.num_layers() == 0;
      case ModelPart::layer:
        break;
    }
    return layer == chunk.first_layer && chunk.num_layers() > 0;
  });
}

class Generator {
 public:
  Generator(const std::vector<Parameter>& parameters, const RankPlan& rank)
      : rank_(rank), layout_(rank.sync) {
    plan_.buckets = gradient_buckets(parameters, layout_.tied_table, layout_.bucket_bytes);
    plan_.made = units_as_made(rank);
  }

  [[nodiscard]] SyncPlan build(const std::vector<Parameter>& parameters) {
    // Sums are in the order in which their last gradients are made.
    for (const Unit& unit : plan_.made) {
      for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
        if (plan_.buckets[i].kind == Kind::layers && last_made(plan_.buckets[i]) == unit) {
          add_last_sum(i, SyncOp::Begin::gradients_made, unit);
        }
      }
    }
    for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
      if (plan_.buckets[i].kind != Kind::layers) {
        add_first_sum(i);
        add_last_sum(i, SyncOp::Begin::passes_end, {});
      }
    }
    if (shards()) {
      // First layers first: they are read first.
      for (std::size_t i = plan_.buckets.size(); i-- > 0;) {
        add({.kind = SyncOp::Kind::all_gather,
             .state = SyncOp::State::weights,
             .group = group_of(plan_.buckets[i]),
             .bucket = i,
             .begin = SyncOp::Begin::update_end,
             .members = members_of_weights(plan_.buckets[i])});
      }
    }
    add_pieces(parameters);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool shards() const { return traits_of(layout_.strategy).slices; }

  [[nodiscard]] SyncGroup group_of(const GradientBucket& bucket) const {
    return bucket.kind == Kind::table && is_fused(layout_) ? SyncGroup::table : SyncGroup::data;
  }

  [[nodiscard]] Unit last_made(const GradientBucket& bucket) const {
    const auto place = [&](const Unit& unit) {
      return std::find(plan_.made.begin(), plan_.made.end(), unit);
    };
    return *std::max_element(bucket.units.begin(),
                             bucket.units.end(),
                             [&](const Unit& a, const Unit& b) { return place(a) < place(b); });
  }

  // A group of one rank has nothing to exchange.
  void add(SyncOp op) {
    const Seat seat = seat_in(op.group, layout_);
    op.ranks = seat.ranks;
    op.rank = seat.rank;
    if (op.ranks > 1) {
      plan_.ops.push_back(op);
    }
  }

  // What comes before ranks that have the same parameters add theirs.
  void add_first_sum(std::size_t bucket) {
    const Kind kind = plan_.buckets[bucket].kind;
    if (kind == Kind::norms && layout_.sequence_parallel) {
      // Each tensor rank has seen its rows only.
      add({.kind = SyncOp::Kind::all_reduce,
           .group = SyncGroup::tensor,
           .bucket = bucket,
           .begin = SyncOp::Begin::passes_end});
    }
    if (kind == Kind::table && layout_.table_on_two_stages && !is_fused(layout_)) {
      add({.kind = SyncOp::Kind::all_reduce,
           .group = SyncGroup::table_pair,
           .bucket = bucket,
           .begin = SyncOp::Begin::passes_end,
           .members = members_of(plan_.buckets[bucket])});
    }
  }

  void add_last_sum(std::size_t bucket, SyncOp::Begin begin, std::optional<Unit> unit) {
    const SyncGroup group = group_of(plan_.buckets[bucket]);
    add({.kind = shards() ? SyncOp::Kind::reduce_scatter : SyncOp::Kind::all_reduce,
         .group = group,
         .bucket = bucket,
         .order = order_over(group),
         .begin = begin,
         .unit = unit,
         .members = members_of(plan_.buckets[bucket])});
  }

  // Data ranks within a group first, then the groups. REQUIRES: the data ranks' or the table's.
  [[nodiscard]] SumOrder order_over(SyncGroup group) const {
    const int data_ranks = layout_.data_ranks_of_group;
    return group == SyncGroup::table ? SumOrder{.runs = {2, data_ranks}}
                                     : SumOrder{.runs = {data_ranks, 1}};
  }

  [[nodiscard]] schedule::TransferClass members_of(const GradientBucket& bucket) const {
    return class_of(*bucket.holds.back(), bucket, rank_);
  }

  // The weights of a table on two stages are of its class, as its gradients are.
  [[nodiscard]] schedule::TransferClass members_of_weights(const GradientBucket& bucket) const {
    const schedule::TransferClass gradients = members_of(bucket);
    if (group_of(bucket) == SyncGroup::table) {
      return gradients;
    }
    const bool table = bucket.kind == Kind::table;  // with each of its ends
    const int last = static_cast<int>(rank_.slice.chunks.size()) - 1;
    const int stage = table && layout_.place.pipeline > 0
                          ? last * layout_.pipeline_size + layout_.place.pipeline
                          : gradients.stage;
    return {.site = Site::parameter_gather, .stage = stage, .phase = Phase::step};
  }

  [[nodiscard]] std::size_t bucket_of(const Parameter& parameter) const {
    const auto holds = [&](const GradientBucket& bucket) {
      return std::find(bucket.holds.begin(), bucket.holds.end(), &parameter) != bucket.holds.end();
    };
    return static_cast<std::size_t>(
        std::find_if(plan_.buckets.begin(), plan_.buckets.end(), holds) - plan_.buckets.begin());
  }

  void add_pieces(const std::vector<Parameter>& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      const GradientBucket& bucket = plan_.buckets[bucket_of(parameter)];
      OptimizerPiece piece =
          shards() ? sharded_piece(bucket, parameter) : whole_piece(bucket, parameter, i);
      if (parameter.spec.cut == TensorCut::none && layout_.place.tensor != 0) {
        piece.counted = false;  // tensor rank 0 has the same
        piece.saved = false;
      }
      if (piece.range.count() > 0) {
        plan_.owned.push_back(piece);
      }
    }
  }

  // The elements of a parameter that fall into this rank's slice of its bucket.
  [[nodiscard]] OptimizerPiece sharded_piece(const GradientBucket& bucket,
                                             const Parameter& parameter) const {
    const SyncGroup group = group_of(bucket);
    const Seat seat = seat_in(group, layout_);
    const Slice own = slice_of(bucket.count, seat.rank, seat.ranks);
    const std::size_t first = parameter.first_element - bucket.first;
    const std::size_t end = first + parameter.shard.shape.num_elements();
    const bool counted = bucket.kind != Kind::table || is_first_copy() || group == SyncGroup::table;
    return {.parameter = &parameter,
            .range = {std::clamp(own.begin, first, end) - first,
                      std::clamp(own.end, first, end) - first},
            .counted = counted,
            .saved = counted};
  }

  // Every data rank has all of it: one counts it, and they share the writing.
  [[nodiscard]] OptimizerPiece whole_piece(const GradientBucket& bucket,
                                           const Parameter& parameter,
                                           std::size_t index) const {
    const bool first = bucket.kind != Kind::table || is_first_copy();
    const auto writer = static_cast<int>(index % static_cast<std::size_t>(layout_.data_size));
    return {.parameter = &parameter,
            .range = {0, parameter.shard.shape.num_elements()},
            .counted = first && layout_.place.data == 0,
            .saved = first && layout_.place.data == writer};
  }

  // Returns whether this rank has the first copy of a tied table on two stages.
  [[nodiscard]] bool is_first_copy() const { return layout_.place.pipeline == 0; }

  const RankPlan& rank_;
  const SyncLayout& layout_;
  SyncPlan plan_;
};

}  // namespace

SyncPlan make_sync_plan(const std::vector<Parameter>& parameters, const RankPlan& rank) {
  return Generator(parameters, rank).build(parameters);
}

schedule::TransferClass class_of(const Parameter& parameter,
                                 const GradientBucket& bucket,
                                 const RankPlan& rank) {
  if (bucket.kind == Kind::table) {
    return {.site = Site::embedding, .stage = 0, .phase = Phase::tail};
  }
  const int place = rank.sync.place.pipeline;
  if (bucket.kind == Kind::norms) {  // of all chunks: counted with the first
    return {.site = Site::data_gradient, .stage = place, .phase = Phase::tail};
  }
  const int chunk = chunk_of(parameter, rank.slice.chunks);
  const bool tail = ends_with(rank.slice.chunks[static_cast<std::size_t>(chunk)], bucket);
  return {.site = Site::data_gradient,
          .stage = chunk * rank.sync.pipeline_size + place,
          .phase = tail ? Phase::tail : Phase::step};
}

CollectiveCall plain_call(const SyncOp& op, const SyncPlan& plan) {
  using Called = TransferRecord::Kind;
  constexpr std::array<Called, 3> kCalls = {
      Called::all_reduce, Called::reduce_scatter, Called::all_gather};
  return {.kind = kCalls[static_cast<std::size_t>(op.kind)],
          .elements = plan.buckets[op.bucket].count,
          .element_size = sizeof(float)};
}

std::size_t axis_of(SyncGroup group) {
  constexpr std::array<std::string_view, 4> kAxes = {"tensor", "data", "embedding", "embedding"};
  const auto axis =
      std::find(kReportedAxes.begin(), kReportedAxes.end(), kAxes[static_cast<std::size_t>(group)]);
  return static_cast<std::size_t>(axis - kReportedAxes.begin());
}

std::string text_of(const SyncOp& op) {
  constexpr std::array<const char*, 3> kKinds = {"all_reduce", "reduce_scatter", "all_gather"};
  constexpr std::array<const char*, 4> kGroups = {"tensor", "data", "table", "table_pair"};
  const std::string when = op.begin == SyncOp::Begin::gradients_made
                               ? fmt::format("when {} is made", text_of(*op.unit))
                           : op.begin == SyncOp::Begin::passes_end ? "when the passes have ended"
                                                                   : "when weights are updated";
  return fmt::format("{} of {} over {} {} ranks: bucket {}, {}",
                     kKinds[static_cast<std::size_t>(op.kind)],
                     op.state == SyncOp::State::gradients ? "gradients" : "weights",
                     op.ranks,
                     kGroups[static_cast<std::size_t>(op.group)],
                     op.bucket,
                     when);
}

}  // namespace slackline
