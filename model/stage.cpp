#include "model/stage.h"

#include <algorithm>

#include "core/kernels/elementwise.h"

namespace slackline {

namespace {

// Whether a block's activations are dropped after its forward pass, so that all blocks share one
// set.
bool shares_activations(const ModelConfig& config, const Stage::Options& options) {
  return config.recompute == Recompute::block ||
         options.purpose == Stage::Options::Purpose::evaluate;
}

}  // namespace

Stage::Stage(Parameters& parameters, const ModelConfig& config, const Options& options)
    : parameters_(&parameters),
      config_(config),
      options_(options),
      embedding_(parameters),
      final_norm_(parameters, "ln_f"),
      head_(parameters, config),
      arena_("activations", activation_bytes(config, options)) {
  for (int layer = 0; layer < config.layers; ++layer) {
    blocks_.emplace_back(parameters, config, layer);
  }
}

Stage::Activations Stage::allocate(Arena& arena,
                                   const ModelConfig& config,
                                   const Options& options) {
  const std::int64_t N = options.micro_batch.num_tokens();
  const auto layers = static_cast<std::size_t>(config.layers);
  const bool evaluate = options.purpose == Options::Purpose::evaluate;
  Activations activations;
  // Evaluation keeps two residual tensors, used in turn.
  const std::size_t num_residuals = evaluate ? std::min<std::size_t>(2, layers + 1) : layers + 1;
  for (std::size_t i = 0; i < num_residuals; ++i) {
    activations.residual.push_back(arena.allocate(options.compute, {N, config.hidden}));
  }
  const std::size_t num_sets = shares_activations(config, options) ? 1 : layers;
  for (std::size_t i = 0; i < num_sets; ++i) {
    activations.blocks.push_back(
        allocate_block_activations(arena, config, options.micro_batch, options.compute));
  }
  activations.final_norm = allocate_norm_activations(arena, N, config.hidden, options.compute);
  return activations;
}

std::size_t Stage::activation_bytes(const ModelConfig& config, const Options& options) {
  Arena arena = Arena::measuring();
  static_cast<void>(allocate(arena, config, options));
  return arena.high_water();
}

std::size_t Stage::workspace_bytes(const ModelConfig& config,
                                   const Options& options,
                                   int num_threads) {
  const std::int64_t N = options.micro_batch.num_tokens();
  const std::size_t held = 2 * Arena::aligned_bytes(options.compute, {N, config.hidden});
  return held +
         std::max(
             {Block::workspace_bytes(config, options.micro_batch, options.compute, num_threads),
              Head::workspace_bytes(config, options.micro_batch, options.compute, num_threads),
              layer_norm_workspace_bytes(N, config.hidden)});
}

const BlockActivations& Stage::kept(std::size_t block) const {
  return activations_.blocks.size() == 1 ? activations_.blocks.front() : activations_.blocks[block];
}

const Tensor& Stage::residual(std::size_t block) const {
  return activations_.residual[block % activations_.residual.size()];
}

void Stage::begin_step(StreamView stream) {
  for (const Parameter& parameter : parameters_->all()) {
    const bool tied_table = parameter.spec.role == ParameterRole::token_embedding &&
                            !parameters_->input_gradient().empty();
    // Products write these in the first pass of a step.
    const bool written = parameter.spec.role == ParameterRole::matrix ||
                         parameter.spec.role == ParameterRole::head || tied_table;
    if (!written) {
      fill_zero(stream, parameter.gradient);
    }
  }
}

void Stage::forward(const Pass& pass) {
  Options options = options_;
  options.micro_batch = {.B = pass.B(), .T = pass.T()};
  arena_.release(0);
  activations_ = allocate(arena_, config_, options);

  embedding_.forward(pass, residual(0));
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    blocks_[block].forward(pass, residual(block), kept(block), residual(block + 1));
  }
  final_norm_.forward(pass.stream, residual(blocks_.size()), activations_.final_norm);
}

double Stage::backward(const Pass& pass, float scale) {
  const Tensor& last = residual(blocks_.size());
  ArenaScope scratch(pass.stream.workspace());
  const Tensor d_residual = scratch.allocate(options_.compute, last.shape());
  double loss = 0.0;
  {
    ArenaScope head_scratch(pass.stream.workspace());
    const Tensor d_norm = head_scratch.allocate(options_.compute, last.shape());
    loss = head_.loss_and_gradient(pass, activations_.final_norm.y, d_norm, scale);
    final_norm_.backward(
        pass.stream, last, activations_.final_norm, d_norm, d_residual, Accumulate::no);
  }
  for (std::size_t block = blocks_.size(); block-- > 0;) {
    if (config_.recompute == Recompute::block) {
      blocks_[block].recompute(pass, residual(block), kept(block));
    }
    blocks_[block].backward(pass, residual(block), kept(block), d_residual);
  }
  embedding_.backward(pass, d_residual);
  return loss;
}

void Stage::finish_gradients(StreamView stream) {
  embedding_.finish_gradient(stream);
}

double Stage::evaluate(Pass pass) {
  pass.dropout = 0.0F;
  forward(pass);
  return head_.loss(pass, activations_.final_norm.y);
}

}  // namespace slackline
