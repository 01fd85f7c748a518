#include "model/stage.h"

#include <algorithm>

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

ChunkSlice chunk_of(const ModelConfig& config, const Stage::Options& options) {
  return options.chunk ? *options.chunk : whole_chunk(config);
}

}  // namespace

Stage::Stage(Parameters& parameters, const ModelConfig& config, const Options& options)
    : parameters_(&parameters),
      config_(config),
      options_(options),
      chunk_(chunk_of(config, options)) {
  SL_CHECK(
      !(config.recompute == Recompute::block && options.weight_gradients == WeightGradients::later),
      "recomputed activations are gone when weight gradients are made later");
  if (chunk_.embedding) {
    embedding_.emplace(parameters);
  }
  for (int layer = chunk_.first_layer; layer < chunk_.last_layer; ++layer) {
    halves_.emplace_back(parameters, config, layer, BlockHalf::Kind::attention);
    halves_.emplace_back(parameters, config, layer, BlockHalf::Kind::mlp);
  }
  if (chunk_.head) {
    final_norm_.emplace(parameters, "ln_f");
    head_.emplace(parameters, config);
  }
  if (options.own_slot) {
    own_slot_ = std::make_unique<ActivationSlot>(activation_bytes(config, options),
                                                 backing_of(parameters.device()));
  }
}

Stage::Tensors Stage::allocate(Arena& arena,
                               const ModelConfig& config,
                               const Options& options,
                               BatchShape batch) {
  const LayerShape shape = options.layer_shape(batch);
  const ChunkSlice chunk = chunk_of(config, options);
  const auto num_halves = 2 * static_cast<std::size_t>(chunk.num_layers());
  const bool evaluate = options.purpose == Purpose::evaluate;
  const bool recompute = config.recompute == Recompute::block;
  const bool later = !evaluate && options.weight_gradients == WeightGradients::later;
  const Shape rows{shape.num_rows(), config.hidden};
  Tensors activations;
  // Activations that are dropped after a layer's forward pass lie where the layer before had them:
  // all of them in evaluation, all but the layer's input with recomputation.
  for (std::size_t half = 0; half <= num_halves; ++half) {
    const bool is_dropped = evaluate || (recompute && half % 2 == 1);
    activations.residual.push_back(half >= 2 && is_dropped ? activations.residual[half - 2]
                                                           : arena.allocate(options.compute, rows));
  }
  for (std::size_t half = 0; half < num_halves; ++half) {
    const auto kind = half % 2 == 0 ? BlockHalf::Kind::attention : BlockHalf::Kind::mlp;
    activations.halves.push_back(half >= 2 && (evaluate || recompute)
                                     ? activations.halves[half - 2]
                                     : BlockHalf::allocate(arena, config, shape, kind));
    activations.later.push_back(later ? BlockHalf::allocate_gradients(arena, config, shape, kind)
                                      : HalfGradients{});
  }
  if (chunk.head) {
    activations.final_norm =
        allocate_norm_activations(arena, shape.num_rows(), config.hidden, options.compute);
  }
  if (!evaluate) {
    activations.gradient = arena.allocate(options.compute, rows);
  }
  return activations;
}

std::size_t Stage::activation_bytes(const ModelConfig& config, const Options& options) {
  Arena arena = Arena::measuring();
  static_cast<void>(allocate(arena, config, options, options.micro_batch));
  return arena.high_water();
}

std::size_t Stage::workspace_bytes(const ModelConfig& config,
                                   const Options& options,
                                   const Workers& workers) {
  const LayerShape shape = options.layer_shape(options.micro_batch);
  const ChunkSlice chunk = chunk_of(config, options);
  std::size_t bytes = BlockHalf::workspace_bytes(config, shape, workers);
  if (chunk.embedding) {
    bytes = std::max(bytes, Embedding::workspace_bytes(config, shape, workers));
  }
  if (chunk.head) {
    // The gradient of the final norm's output is held beside what either of the two takes.
    const std::size_t held =
        Arena::aligned_bytes(shape.partial(), {shape.num_rows(), config.hidden});
    bytes = std::max({bytes,
                      held + Head::workspace_bytes(config, shape, workers),
                      held + layer_norm_workspace_bytes(shape.num_rows(), config.hidden, workers)});
  }
  return bytes;
}

bool Stage::is_prepared(const ActivationSlot& slot, BatchShape shape) const {
  return slot.user_ == this && slot.shape_ == shape;
}

void Stage::prepare(ActivationSlot& slot, BatchShape shape) const {
  if (!is_prepared(slot, shape)) {
    slot.arena_.release(0);
    slot.tensors_ = allocate(slot.arena_, config_, options_, shape);
    slot.user_ = this;
    slot.shape_ = shape;
  }
}

const Stage::Tensors& Stage::kept(const ActivationSlot& slot) const {
  SL_CHECK(slot.user_ == this, "the slot holds another chunk's activations");
  return slot.tensors_;
}

const Tensor& Stage::input(const ActivationSlot& slot) const {
  return kept(slot).residual.front();
}

const Tensor& Stage::output(const ActivationSlot& slot) const {
  return kept(slot).residual.back();
}

const Tensor& Stage::gradient(const ActivationSlot& slot) const {
  return kept(slot).gradient;
}

const Tensor& Stage::final_norm_output() const {
  return kept(*own_slot_).final_norm.y;
}

void Stage::begin_step(StreamView stream) {
  for (const Parameter& parameter : parameters_->all()) {
    const ParameterSpec& spec = parameter.spec;
    const bool here = ModelSlice{.chunks = {chunk_}}.holds(spec, config_);
    // Products write these in the first pass of a step.
    const bool head_table =
        spec.role == ParameterRole::head || (spec.role == ParameterRole::token_embedding &&
                                             config_.tie_embeddings && parameters_->slice().head());
    if (here && spec.trained && spec.role != ParameterRole::matrix && !head_table) {
      fill_zero(stream, parameter.gradient);
    }
  }
}

void Stage::forward(const Pass& pass, ActivationSlot& slot) {
  prepare(slot, {.B = pass.B(), .T = pass.T()});
  const Tensors& to = kept(slot);
  if (embedding_) {
    pass.before_use(ModelPart::embedding);
    embedding_->forward(pass, to.residual.front());
    pass.after_use(ModelPart::embedding);
  }
  // A layer makes the norm that follows it, unless somebody changes what passes between the two.
  const bool is_joined = pass.filter == nullptr;
  for (int layer = chunk_.first_layer; layer < chunk_.last_layer; ++layer) {
    const std::size_t attention = attention_of(layer);
    const std::size_t mlp = attention + 1;
    if (attention == 0 || !is_joined) {
      make_norm(pass, to, attention);
    }
    pass.before_use(ModelPart::layer, layer);
    forward_half(pass, to, attention, norm_before(to, mlp));
    forward_half(pass, to, mlp, is_joined ? norm_before(to, mlp + 1) : std::nullopt);
    pass.after_use(ModelPart::layer, layer);
    pass.after_layer(layer, to.residual[mlp + 1]);
  }
  if (head_ && (halves_.empty() || !is_joined)) {
    make_norm(pass, to, halves_.size());
  }
}

std::optional<FollowingNorm> Stage::norm_before(const Tensors& kept, std::size_t half) const {
  if (half < halves_.size()) {
    return halves_[half].norm_of(kept.halves[half]);
  }
  if (head_) {
    return FollowingNorm{*final_norm_, kept.final_norm, ModelPart::head};
  }
  return std::nullopt;
}

void Stage::make_norm(const Pass& pass, const Tensors& kept, std::size_t half) const {
  const FollowingNorm norm = *norm_before(kept, half);
  pass.before_norm(norm.part, norm.layer);
  norm.norm.forward(pass.stream, kept.residual[half], norm.kept);
}

void Stage::forward_half(const Pass& pass,
                         const Tensors& kept,
                         std::size_t half,
                         const std::optional<FollowingNorm>& next) const {
  halves_[half].forward(
      pass, kept.residual[half], kept.halves[half], kept.residual[half + 1], next);
}

void Stage::head_backward(const Pass& pass, const Tensors& kept, float scale) {
  ArenaScope scratch(pass.stream.workspace());
  const Tensor d_norm =
      scratch.allocate(options_.share.partial(options_.compute), kept.gradient.shape());
  pass.before_use(ModelPart::head);
  pass.before_gradients(ModelPart::head);
  head_->add_loss(pass, kept.final_norm.y, {.d_x = d_norm, .scale = scale});
  pass.after_use(ModelPart::head);
  final_norm_->backward(
      pass.stream, kept.residual.back(), kept.final_norm, d_norm, kept.gradient, Accumulate::no);
  pass.gradients_made(ModelPart::head);
}

void Stage::backward(const Pass& pass, float scale, const ActivationSlot& slot) {
  const Tensors& from = kept(slot);
  if (head_) {
    head_backward(pass, from, scale);
  }
  const bool makes_all = options_.weight_gradients == WeightGradients::now;
  for (int layer = chunk_.last_layer; layer-- > chunk_.first_layer;) {
    const std::size_t attention = attention_of(layer);
    const std::size_t mlp = attention + 1;
    pass.before_use(ModelPart::layer, layer);
    if (makes_all) {
      pass.before_gradients(ModelPart::layer, layer);
    }
    if (config_.recompute == Recompute::block) {
      make_norm(pass, from, attention);
      forward_half(pass, from, attention, norm_before(from, mlp));
      halves_[mlp].expand(pass, from.halves[mlp]);
    }
    for (const std::size_t half : {mlp, attention}) {
      halves_[half].backward(
          pass, from.residual[half], from.halves[half], from.later[half], from.gradient);
    }
    pass.after_use(ModelPart::layer, layer);
    if (makes_all) {
      pass.gradients_made(ModelPart::layer, layer);
    }
  }
  if (embedding_) {
    pass.before_gradients(ModelPart::embedding);
    embedding_->backward(pass, from.gradient);
    pass.gradients_made(ModelPart::embedding);
  }
}

void Stage::backward_weight(const Pass& pass, const ActivationSlot& slot) {
  const Tensors& from = kept(slot);
  for (int layer = chunk_.last_layer; layer-- > chunk_.first_layer;) {
    const std::size_t attention = attention_of(layer);
    pass.before_gradients(ModelPart::layer, layer);
    for (const std::size_t half : {attention + 1, attention}) {
      halves_[half].backward_weight(pass, from.halves[half], from.later[half]);
    }
    pass.gradients_made(ModelPart::layer, layer);
  }
}

void Stage::finish_gradients(StreamView stream) {
  if (embedding_) {
    embedding_->finish_gradient(stream);
  }
}

void Stage::add_loss(const Pass& pass, const ActivationSlot& slot) const {
  pass.before_use(ModelPart::head);
  head_->add_loss(pass, kept(slot).final_norm.y);
  pass.after_use(ModelPart::head);
}

double Stage::evaluate(Pass pass) {
  LossSum losses;
  pass.dropout = 0.0F;
  pass.losses = &losses;
  forward(pass);
  add_loss(pass, *own_slot_);
  return losses.take(pass.stream);
}

}  // namespace slackline
