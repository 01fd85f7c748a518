#include "parallel/predict/step_cost_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/comm/collective_bytes.h"
#include "core/error.h"
#include "model/cost/part_flops.h"
#include "model/cost/tensor_sums.h"
#include "model/parameter_table.h"
#include "parallel/mesh/executor_bytes.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/plan/class_costs.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/predict/axis_links.h"
#include "parallel/predict/bucket_times.h"
#include "parallel/predict/collective_times.h"
#include "parallel/predict/data_axis.h"
#include "parallel/schedule/schedule_traits.h"

namespace slackline {

namespace {

using schedule::ChunkCosts;
using schedule::Seconds;

class CostModelBuilder {
 public:
  CostModelBuilder(const MeshLists& lists,
                   const StepCosts& costs,
                   const LinkSpeeds& links,
                   const CompressionPlan& plan)
      : plan_(plan),
        lists_(lists),
        job_(lists.job()),
        costs_(costs),
        links_(links),
        stages_(split_layers(job_.model, job_.parallel)),
        use_stages_(stages_fit()) {}

  [[nodiscard]] schedule::CostModel build() {
    require_same_model();
    require_same_precision();
    model_.codecs_take_compute = costs_.codecs_take_compute;
    for (int stage = 0; stage < num_stages(); ++stage) {
      model_.chunks.push_back(use_stages_ ? measured_stage(stage) : stage_of_parts(stage));
    }
    add_boundaries();
    add_tensor_axis();
    add_data_axis({.lists = &lists_,
                   .costs = &costs_,
                   .links = links_ ? &*links_ : nullptr,
                   .plan = &plan_,
                   .stages_fit = use_stages_},
                  model_);
    add_update();
    return std::move(model_);
  }

 private:
  [[nodiscard]] int num_stages() const { return static_cast<int>(stages_.size()); }

  [[nodiscard]] const ParallelConfig& mesh() const { return job_.parallel; }

  [[nodiscard]] const ChunkSlice& slice(int stage) const {
    return stages_[static_cast<std::size_t>(stage)];
  }

  [[nodiscard]] ChunkCosts& chunk(int stage) {
    return model_.chunks[static_cast<std::size_t>(stage)];
  }

  // Whether costs of virtual stages were measured on this job's layout.
  [[nodiscard]] bool stages_fit() const {
    if (costs_.layout && *costs_.layout != layout_of(job_)) {
      return false;
    }
    int measured = 0;
    for (const OpCost& op : costs_.ops) {
      measured = op.kind == CostKind::forward ? std::max(measured, op.stage + 1) : measured;
    }
    const bool parts = costs_.of_part(CostKind::layer_forward).has_value();
    if (measured != num_stages() && !parts) {
      throw ConfigError(fmt::format(
          "ops: must give forward and backward of {} virtual stages, or layer_forward and the "
          "other costs of parts; got {} stages",
          num_stages(),
          measured));
    }
    return measured == num_stages();
  }

  [[nodiscard]] Seconds of_stage(int stage, CostKind kind) const {
    if (const auto seconds = costs_.of_stage(stage, kind)) {
      return *seconds;
    }
    throw ConfigError(fmt::format("ops: must give \"{}\" of every virtual stage; got none of {}",
                                  kCostKindNames[static_cast<std::size_t>(kind)],
                                  stage));
  }

  // The number of layers may differ.
  void require_same_model() const {
    if (!costs_.model) {
      return;
    }
    const ModelConfig& own = job_.model;
    ModelConfig measured = *costs_.model;
    measured.layers = own.layers;
    if (measured == own) {
      return;
    }
    const auto sizes = [](const ModelConfig& model) {
      return fmt::format("hidden {}, heads {}, sequence {}, vocab {}, ffn {}",
                         model.hidden,
                         model.heads,
                         model.sequence,
                         model.vocab,
                         model.ffn);
    };
    const bool same_sizes = sizes(measured) == sizes(own);
    throw ConfigError(
        "model: costs hold for the model that they were measured of, with any number of layers: " +
        (same_sizes ? "this one has another dropout, tie_embeddings, recompute or trainable"
                    : sizes(measured) + "; got a config with " + sizes(own)) +
        "; measure this model, or take \"model\" out of the file to use them all the same");
  }

  void require_same_precision() const {
    if (costs_.precision.value_or(job_.precision) != job_.precision) {
      throw ConfigError(fmt::format(
          "precision: costs hold for the precision that they were measured in, {}; got a config "
          "with {}; measure in this one, or take \"precision\" out of the file to use them all "
          "the same",
          *costs_.precision == DType::f32 ? "fp32" : "bf16",
          job_.precision == DType::f32 ? "fp32" : "bf16"));
    }
  }

  // Returns the seconds of one token, all tensor ranks' times added.
  [[nodiscard]] Seconds of_part(CostKind kind) const {
    if (const auto seconds = costs_.of_part(kind)) {
      return *seconds;
    }
    throw ConfigError(fmt::format(
        "ops: must give \"{}\", or costs of virtual stages measured on this layout; got none",
        kCostKindNames[static_cast<std::size_t>(kind)]));
  }

  [[nodiscard]] bool splits_backward() const {
    return schedule::traits_of(mesh().schedule).splits_backward;
  }

  [[nodiscard]] ChunkCosts measured_stage(int stage) const {
    ChunkCosts chunk{.forward = of_stage(stage, CostKind::forward)};
    const auto whole = costs_.of_stage(stage, CostKind::backward);
    if (!whole || (splits_backward() && costs_.of_stage(stage, CostKind::backward_weight))) {
      chunk.backward_input = of_stage(stage, CostKind::backward_input);
      chunk.backward_weight = of_stage(stage, CostKind::backward_weight);
    } else if (splits_backward()) {
      const PartShares shares = part_shares(job_.model, slice(stage));
      chunk.backward_weight = (slice(stage).num_layers() * shares.layer_weight) * *whole;
      chunk.backward_input = *whole - chunk.backward_weight;
    } else {
      chunk.backward_input = *whole;
    }
    return chunk;
  }

  struct LayerBackward {
    Seconds input{};
    Seconds weight{};
  };

  [[nodiscard]] LayerBackward layer_backward() const {
    const auto whole = costs_.of_part(CostKind::layer_backward);
    const bool parts = costs_.of_part(CostKind::layer_backward_weight).has_value();
    if (!whole || (splits_backward() && parts)) {
      return {.input = of_part(CostKind::layer_backward_input),
              .weight = of_part(CostKind::layer_backward_weight)};
    }
    Seconds weight{};
    if (splits_backward()) {  // as much of it as the operations say
      const StepCosts assumed = assumed_costs(job_.model, {});
      weight = *assumed.of_part(CostKind::layer_backward_weight) /
               *assumed.of_part(CostKind::layer_backward) * *whole;
    }
    return {.input = *whole - weight, .weight = weight};
  }

  [[nodiscard]] ChunkCosts stage_of_parts(int stage) const {
    const double tokens =
        static_cast<double>(job_.micro_batch.num_tokens()) / static_cast<double>(mesh().tensor);
    const ChunkSlice& held = slice(stage);
    const double layers = held.num_layers();
    const LayerBackward layer = layer_backward();
    ChunkCosts chunk{.forward = layers * of_part(CostKind::layer_forward),
                     .backward_input = layers * layer.input,
                     .backward_weight = (tokens * layers) * layer.weight};
    if (held.embedding) {
      chunk.forward += of_part(CostKind::embedding_forward);
      chunk.backward_input += of_part(CostKind::embedding_backward);
    }
    if (held.head) {
      chunk.forward += of_part(CostKind::head_forward);
      chunk.backward_input += of_part(CostKind::head_backward);
    }
    chunk.forward = tokens * chunk.forward;
    chunk.backward_input = tokens * chunk.backward_input;
    return chunk;
  }

  void add_boundaries() {
    const std::int64_t elements = job_.micro_batch.num_tokens() * job_.model.hidden;
    const schedule::Bytes message{static_cast<std::size_t>(elements) * size_of(job_.precision)};
    for (ChunkCosts& chunk : model_.chunks) {
      chunk.forward_bytes = message;
      chunk.backward_bytes = message;
    }
    const int p = mesh().pipeline;
    if (!links_ || p == 1) {
      return;
    }
    for (int from = 0; from < p; ++from) {
      for (const int to : {(from + 1) % p, (from + p - 1) % p}) {
        model_.links[{from, to}] = boundary_link(mesh(), *links_, from, to);
      }
    }
  }

  // All stages' passes go on at the same time. A sum of input gradients hides behind a weight
  // gradient that is made at once. What is posted behind another exchange, on the same links, waits
  // for no latency.
  void add_tensor_axis() {
    if (!links_ || mesh().tensor == 1) {
      return;
    }
    const ExecutorPlan& executor = lists_.at(0).rank.executor;
    const CollectiveLinks links = tensor_links();
    for (int stage = 0; stage < num_stages(); ++stage) {
      const WeightSeconds weights = weight_seconds(stage);
      for (const TensorExchange& exchange :
           chunk_exchanges(job_.model, chunk_options(executor, slice(stage)))) {
        schedule::TensorSums sums{.count = 1,
                                  .each = times_of(links, exchange.call()).seconds(),
                                  .bytes = bytes_of(exchange)};
        if (exchange.behind_previous) {
          sums.hidden = links.direct.latency;
        } else if (exchange.beside && hides_sums() && exchange.pass == PassKind::backward_input) {
          sums.hidden = std::min(sums.each, weights.beside(exchange, job_.micro_batch));
        }
        add(sums, sums_of(chunk(stage), exchange.pass));
      }
    }
  }

  // Weight gradients are made at once, and from inputs that are all there.
  [[nodiscard]] bool hides_sums() const { return !mesh().sequence_parallel && !splits_backward(); }

  static std::vector<schedule::TensorSums>& sums_of(ChunkCosts& chunk, PassKind pass) {
    switch (pass) {
      case PassKind::forward:
        return chunk.forward_sums;
      case PassKind::backward_input:
        return chunk.backward_sums;
      case PassKind::backward_weight:
        break;
    }
    return chunk.weight_sums;
  }

  // Layers make the same ones.
  static void add(const schedule::TensorSums& sums, std::vector<schedule::TensorSums>& list) {
    const auto same = std::ranges::find_if(list, [&](const schedule::TensorSums& other) {
      return other.each == sums.each && other.hidden == sums.hidden && other.bytes == sums.bytes;
    });
    same == list.end() ? list.push_back(sums) : void(same->count += sums.count);
  }

  [[nodiscard]] CollectiveLinks tensor_links() const {
    return direct_links(mesh().tensor, group_link(mesh(), *links_, "tensor", kEveryPlace));
  }

  // All ranks of a tensor group send them.
  [[nodiscard]] schedule::Bytes bytes_of(const TensorExchange& exchange) const {
    std::size_t bytes = 0;
    for (int rank = 0; rank < mesh().tensor; ++rank) {
      bytes += bytes_sent_by(exchange.call(), rank, mesh().tensor);
    }
    return {bytes};
  }

  // What weight gradients take of a backward pass that makes them at once.
  struct WeightSeconds {
    Seconds layer{};  // all four products of one
    Seconds head{};
    const ModelConfig* model = nullptr;

    // What travels beside the last tokens of the head's sees no other.
    [[nodiscard]] Seconds beside(const TensorExchange& exchange, const BatchShape& batch) const {
      if (*exchange.beside == WeightProduct::logits) {
        return (static_cast<double>(exchange.beside_tokens) /
                static_cast<double>(batch.num_tokens())) *
               head;
      }
      double all = 0.0;
      for (const WeightProduct product : {WeightProduct::qkv,
                                          WeightProduct::attention_projection,
                                          WeightProduct::expansion,
                                          WeightProduct::mlp_projection}) {
        all += product_flops(*model, product);
      }
      return (product_flops(*model, *exchange.beside) / all) * layer;
    }
  };

  // REQUIRES: chunk(stage).backward_input holds the stage's computing.
  [[nodiscard]] WeightSeconds weight_seconds(int stage) const {
    const PartShares shares = part_shares(job_.model, slice(stage));
    const Seconds whole = model_.chunks[static_cast<std::size_t>(stage)].backward_input;
    constexpr double kTableShare = 1.0 / 3.0;  // logits, input and table gradient cost the same
    return {.layer = shares.layer_weight * whole,
            .head = (kTableShare * shares.head_backward) * whole,
            .model = &job_.model};
  }

  void add_update() {
    for (int place = 0; place < mesh().pipeline; ++place) {
      Seconds seconds{};
      for (int stage = place; stage < num_stages(); stage += mesh().pipeline) {
        seconds += update_seconds(stage);
      }
      model_.optimizer = std::max(model_.optimizer, seconds);
    }
    if (const auto measured = costs_.of_stage(0, CostKind::gradient_norm)) {
      model_.gradient_norm = *measured;
    } else if (links_ && mesh().num_ranks() > 1) {
      model_.gradient_norm =
          agreement_seconds(mesh(), *links_, parameter_table(job_.model).size()) + norm_sums();
    }
  }

  [[nodiscard]] Seconds update_seconds(int stage) const {
    const auto measured = costs_.of_stage(stage, CostKind::optimizer);
    const auto element = costs_.of_part(CostKind::element_update);
    if (measured && use_stages_ && !element) {
      return *measured;
    }
    return updated_elements(lists_, stage) * element.value_or(Seconds{});
  }

  // Norms' gradients over tensor ranks, which nothing hides.
  [[nodiscard]] Seconds norm_sums() const {
    Seconds longest{};
    if (!mesh().sequence_parallel || mesh().tensor == 1) {
      return longest;
    }
    const CollectiveLinks links = tensor_links();
    for (int place = 0; place < mesh().pipeline; ++place) {
      const CollectiveCall sum{.kind = TransferRecord::Kind::all_reduce,
                               .elements = norm_elements(lists_, place)};
      longest = std::max(longest, times_of(links, sum).seconds());
    }
    return longest;
  }

  const CompressionPlan& plan_;
  const MeshLists& lists_;
  const MeshJob& job_;
  const StepCosts& costs_;
  const LinkSpeeds& links_;
  std::vector<ChunkSlice> stages_;
  bool use_stages_;
  schedule::CostModel model_;
};

}  // namespace

schedule::CostModel cost_model(const MeshJob& job,
                               const StepCosts& costs,
                               const LinkSpeeds& links) {
  return cost_model(MeshLists(job), costs, links);
}

schedule::CostModel cost_model(const MeshLists& lists,
                               const StepCosts& costs,
                               const LinkSpeeds& links,
                               const CompressionPlan& plan) {
  return CostModelBuilder(lists, costs, links, plan).build();
}

schedule::Timeline predicted_timeline(const MeshLists& lists,
                                      const StepCosts& costs,
                                      const LinkSpeeds& links,
                                      const CompressionPlan& plan) {
  schedule::CostModel model = cost_model(lists, costs, links, plan);
  model.compressed = class_costs(lists, plan, costs);
  return schedule::make_timeline(lists.schedule(), model);
}

LinkSpeeds measured_links(const StepCosts& costs, int num_ranks) {
  if (!costs.node_link && !costs.network_link) {
    return std::nullopt;
  }
  Cluster cluster{.nodes = costs.nodes};
  if (cluster.nodes.empty()) {
    cluster.nodes = {{.count = 1, .devices = num_ranks}};
  }
  if (const int missing = num_ranks - cluster.num_devices(); missing > 0) {
    const int devices = cluster.nodes.back().devices;
    cluster.nodes.push_back({.count = (missing - 1) / devices + 1, .devices = devices});
  }
  cluster.node_link = costs.node_link.value_or(costs.network_link.value_or(Cluster::Link{}));
  cluster.network_link = costs.network_link.value_or(cluster.node_link);
  return cluster;
}

}  // namespace slackline
