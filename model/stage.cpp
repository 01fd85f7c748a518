#include "model/stage.h"

#include <algorithm>

#include "core/kernels/elementwise/elementwise.h"
#include "model/residual.h"

namespace slackline {

namespace {

ChunkSlice chunk_of(const ModelConfig& config, const Stage::Options& options) {
  return options.chunk ? *options.chunk : whole_chunk(config);
}

// Whether a block's activations are dropped after its forward pass, so that all blocks share one
// set.
bool shares_activations(const ModelConfig& config, const Stage::Options& options) {
  return config.recompute == Recompute::block || options.purpose == Stage::Purpose::evaluate;
}

// The element of a list that has one entry per block, or one for all of them.
template <typename T>
const T& of_block(const std::vector<T>& list, std::size_t block) {
  return list.size() == 1 ? list.front() : list[block];
}

const Tensor& residual_before(const std::vector<Tensor>& residual, std::size_t block) {
  return residual[block % residual.size()];
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
    blocks_.emplace_back(parameters, config, layer);
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
  const auto layers = static_cast<std::size_t>(chunk.num_layers());
  const bool evaluate = options.purpose == Purpose::evaluate;
  const Shape rows{shape.num_rows(), config.hidden};
  Tensors activations;
  // Evaluation keeps two residual tensors, used in turn.
  const std::size_t num_residuals = evaluate ? std::min<std::size_t>(2, layers + 1) : layers + 1;
  for (std::size_t i = 0; i < num_residuals; ++i) {
    activations.residual.push_back(arena.allocate(options.compute, rows));
  }
  const std::size_t num_sets = shares_activations(config, options) ? 1 : layers;
  for (std::size_t i = 0; i < num_sets; ++i) {
    activations.blocks.push_back(allocate_block_activations(arena, config, shape));
  }
  const bool later = !evaluate && options.weight_gradients == WeightGradients::later;
  for (std::size_t i = 0; i < (later ? layers : 1); ++i) {
    activations.later.push_back(later ? allocate_block_gradients(arena, config, shape)
                                      : BlockGradients{});
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
    bytes = std::max(
        bytes, Embedding::workspace_bytes(config, shape.batch, shape.dtype, shape.share, workers));
  }
  if (chunk.head) {
    // The gradient of the final norm's output is held beside what either of the two takes.
    const std::size_t held =
        Arena::aligned_bytes(shape.partial(), {shape.num_rows(), config.hidden});
    bytes = std::max(
        {bytes,
         held + Head::workspace_bytes(config, shape.batch, shape.dtype, workers, shape.share),
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
  return residual_before(kept(slot).residual, blocks_.size());
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
  // A block makes the norm that follows it, unless somebody changes what passes between the two.
  const bool is_joined = pass.filter == nullptr;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Tensor& before = residual_before(to.residual, i);
    const Tensor& after = residual_before(to.residual, i + 1);
    if (i == 0 || !is_joined) {
      make_norm(pass, before, *norm_before(to, i));
    }
    const std::optional<FollowingNorm> next = is_joined ? norm_before(to, i + 1) : std::nullopt;
    const int layer = chunk_.first_layer + static_cast<int>(i);
    pass.before_use(ModelPart::layer, layer);
    blocks_[i].forward(pass, before, of_block(to.blocks, i), after, next);
    pass.after_use(ModelPart::layer, layer);
    pass.after_layer(layer, after);
  }
  if (head_ && (blocks_.empty() || !is_joined)) {
    make_norm(pass, residual_before(to.residual, blocks_.size()), *norm_before(to, blocks_.size()));
  }
}

std::optional<FollowingNorm> Stage::norm_before(const Tensors& kept, std::size_t block) const {
  if (block < blocks_.size()) {
    return blocks_[block].norm_of(of_block(kept.blocks, block));
  }
  if (head_) {
    return FollowingNorm{*final_norm_, kept.final_norm, ModelPart::head};
  }
  return std::nullopt;
}

void Stage::head_backward(const Pass& pass, const Tensors& kept, float scale) {
  ArenaScope scratch(pass.stream.workspace());
  const Tensor d_norm =
      scratch.allocate(options_.share.partial(options_.compute), kept.gradient.shape());
  pass.before_use(ModelPart::head);
  pass.before_gradients(ModelPart::head);
  head_->add_loss_and_gradient(pass, kept.final_norm.y, d_norm, scale);
  pass.after_use(ModelPart::head);
  final_norm_->backward(pass.stream,
                        residual_before(kept.residual, blocks_.size()),
                        kept.final_norm,
                        d_norm,
                        kept.gradient,
                        Accumulate::no);
  pass.gradients_made(ModelPart::head);
}

void Stage::backward(const Pass& pass, float scale, const ActivationSlot& slot) {
  const Tensors& from = kept(slot);
  if (head_) {
    head_backward(pass, from, scale);
  }
  const bool makes_all = options_.weight_gradients == WeightGradients::now;
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const int layer = chunk_.first_layer + static_cast<int>(i);
    pass.before_use(ModelPart::layer, layer);
    if (makes_all) {
      pass.before_gradients(ModelPart::layer, layer);
    }
    if (config_.recompute == Recompute::block) {
      blocks_[i].recompute(pass, from.residual[i], of_block(from.blocks, i));
    }
    blocks_[i].backward(
        pass, from.residual[i], of_block(from.blocks, i), of_block(from.later, i), from.gradient);
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
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const int layer = chunk_.first_layer + static_cast<int>(i);
    pass.before_gradients(ModelPart::layer, layer);
    blocks_[i].backward_weight(pass, of_block(from.blocks, i), from.later[i]);
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
