#include "parallel/predict/summed_axis.h"

#include <algorithm>

#include "parallel/predict/axis_links.h"
#include "parallel/predict/bucket_times.h"
#include "parallel/predict/collective_times.h"

namespace slackline {

namespace {

using schedule::ChunkCosts;
using schedule::Seconds;

// Shorter than anything measured: a transfer that takes no time still has a place in the timeline.
constexpr Seconds kNoTime{1e-12};

class SummedAxisBuilder {
 public:
  SummedAxisBuilder(const SummedAxis& axis, schedule::CostModel& model)
      : axis_(axis), model_(model) {}

  void add_data_axis() {
    if (mesh().data == 1) {
      return;
    }
    const bool sharded = mesh().data_strategy.shares_updates();
    for (int place = 0; place < mesh().pipeline; ++place) {
      const CollectiveLinks links = data_links_at(place);
      for (const PlacedBucket& bucket : placed_buckets(lists(), place)) {
        const auto call_of = [&](TransferRecord::Kind kind, std::size_t size = sizeof(float)) {
          return data_call(kind, bucket.bytes, size);
        };
        const auto times = [&](TransferRecord::Kind kind, std::size_t size = sizeof(float)) {
          return times_of(links, call_of(kind, size));
        };
        const CollectiveTimes sum = times(TransferRecord::Kind::all_reduce);
        const CollectiveTimes plain = sharded ? times(TransferRecord::Kind::reduce_scatter) : sum;
        chunk(bucket.stage)
            .data_reduction.push_back(
                {.at = bucket.reduce_at,
                 .seconds = plain.service,
                 .exchanges = exchanges_of(plain, sum),
                 .end = shared_end(links, call_of(TransferRecord::Kind::all_reduce)),
                 .table = bucket.table,
                 .tail = bucket.tail});
        if (sharded) {
          // First layers first, as they are read.
          const CollectiveTimes gather =
              times(TransferRecord::Kind::all_gather, bucket.weight_size);
          std::vector<schedule::Bucket>& gathers = chunk(bucket.stage).parameter_gather;
          gathers.insert(
              gathers.begin(),
              {.at = bucket.gather_at,
               .seconds = gather.service,
               .exchanges = exchanges_of(gather),
               .end = shared_end(links,
                                 call_of(TransferRecord::Kind::all_gather, bucket.weight_size))});
        }
      }
    }
    if (axis_.links == nullptr) {
      for (int stage = 0; stage < num_stages(); ++stage) {
        spread(stage, CostKind::data_reduction, chunk(stage).data_reduction);
        spread(stage, CostKind::parameter_gather, chunk(stage).parameter_gather);
      }
    }
  }

  void add_table() {
    if (mesh().pipeline == 1 || !job().model.tie_embeddings ||
        !is_trained(job().model, "wte.weight")) {
      return;
    }
    model_.embedding_sync = kNoTime;
    if (axis_.links == nullptr) {
      const auto measured = axis_.costs->of_stage(0, CostKind::embedding_sync);
      model_.embedding_sync = measured.value_or(kNoTime);
      return;
    }
    const std::size_t table = static_cast<std::size_t>(job().model.vocab) *
                              static_cast<std::size_t>(job().model.hidden) * sizeof(float) /
                              static_cast<std::size_t>(mesh().tensor);
    if (mesh().embedding_sync == EmbeddingSync::separate) {
      add_separate_table(table);
      return;
    }
    const CollectiveLinks links = table_links(mesh(), *axis_.links);
    const auto times = [&](TransferRecord::Kind kind, std::size_t size = sizeof(float)) {
      return times_of(links,
                      {.kind = kind,
                       .elements = table / sizeof(float),
                       .element_size = size,
                       .order = {.runs = {2, mesh().data_ranks_of_group()}},
                       .hierarchy = mesh().table_hierarchy()});
    };
    const CollectiveTimes sum = times(TransferRecord::Kind::all_reduce);
    if (!mesh().data_strategy.shares_updates()) {
      model_.embedding_sync += sum.service;
      model_.embedding_exchanges = exchanges_of(sum, sum);
      return;
    }
    const CollectiveTimes scatter = times(TransferRecord::Kind::reduce_scatter);
    const CollectiveTimes gather = times(TransferRecord::Kind::all_gather, weight_size());
    model_.embedding_sync += scatter.service;
    model_.embedding_exchanges = exchanges_of(scatter, sum);
    add_table_gathers(gather);
  }

 private:
  // What was measured of a stage's buckets together, in equal parts.
  void spread(int stage, CostKind kind, std::vector<schedule::Bucket>& buckets) const {
    const auto seconds = axis_.costs->of_stage(stage, kind);
    if (!axis_.stages_fit || !seconds) {
      return;
    }
    for (schedule::Bucket& bucket : buckets) {
      bucket.seconds = (1.0 / static_cast<double>(buckets.size())) * *seconds;
    }
  }

  // Both ends of a pipeline read it, the first first, the last at its end.
  void add_table_gathers(const CollectiveTimes& gather) {
    for (const int stage : {0, num_stages() - 1}) {
      std::vector<schedule::Bucket>& gathers = chunk(stage).parameter_gather;
      gathers.insert(stage == 0 ? gathers.begin() : gathers.end(),
                     {.seconds = gather.service, .exchanges = exchanges_of(gather)});
    }
  }

  // Both ends of a pipeline first, then the data ranks. The longer latency counts for both.
  void add_separate_table(std::size_t table) {
    const schedule::Link link = table_link(mesh(), *axis_.links);
    const CollectiveCall of_ends{.kind = TransferRecord::Kind::all_reduce,
                                 .elements = table / sizeof(float)};
    model_.embedding_sync += times_of(direct_links(2, link), of_ends).service;
    model_.embedding_exchanges = {.latency = link.latency};
    if (mesh().data == 1) {
      return;
    }
    const auto times = [&](TransferRecord::Kind kind, std::size_t size = sizeof(float)) {
      return times_of(data_links_at(0), data_call(kind, table, size));
    };
    const bool sharded = mesh().data_strategy.shares_updates();
    const CollectiveTimes sum = times(TransferRecord::Kind::all_reduce);
    const CollectiveTimes plain = sharded ? times(TransferRecord::Kind::reduce_scatter) : sum;
    model_.embedding_sync += plain.service;
    model_.embedding_exchanges = {.latency = std::max(link.latency, plain.latency),
                                  .plain = 1 + plain.exchanges,
                                  .sum = 1 + sum.exchanges};
    if (sharded) {
      add_table_gathers(times(TransferRecord::Kind::all_gather, weight_size()));
    }
  }

  // Several stages' transfers pass it one behind another.
  [[nodiscard]] int shared_end(const CollectiveLinks& links, const CollectiveCall& call) const {
    return mesh().pipeline > 1 ? end_of(links, call) : -1;
  }

  // All data ranks at a place of the pipeline; where no links are known they take no time.
  [[nodiscard]] CollectiveLinks data_links_at(int place) const {
    return axis_.links != nullptr ? data_links(mesh(), *axis_.links, place)
                                  : direct_links(mesh().data, {});
  }

  // Bytes of an element of the table as it is gathered.
  [[nodiscard]] std::size_t weight_size() const { return size_of(lists().at(0).plan.compute); }

  // The call is for gradients of `bytes`, or for their weights, which have `size` bytes an element.
  [[nodiscard]] CollectiveCall data_call(TransferRecord::Kind kind,
                                         std::size_t bytes,
                                         std::size_t size) const {
    return {.kind = kind,
            .elements = bytes / sizeof(float),
            .element_size = size,
            .order = {.runs = {mesh().data_ranks_of_group(), 1}},
            .hierarchy = mesh().data_hierarchy()};
  }

  [[nodiscard]] const MeshLists& lists() const { return *axis_.lists; }

  [[nodiscard]] const MeshJob& job() const { return lists().job(); }

  [[nodiscard]] const ParallelConfig& mesh() const { return job().parallel; }

  [[nodiscard]] int num_stages() const { return static_cast<int>(model_.chunks.size()); }

  [[nodiscard]] ChunkCosts& chunk(int stage) {
    return model_.chunks[static_cast<std::size_t>(stage)];
  }

  const SummedAxis& axis_;
  schedule::CostModel& model_;
};

}  // namespace

void add_summed_axis(const SummedAxis& axis, schedule::CostModel& model) {
  SummedAxisBuilder builder(axis, model);
  builder.add_data_axis();
  builder.add_table();
}

}  // namespace slackline
