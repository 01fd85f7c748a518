#include "model/block_half.h"

#include <algorithm>

#include "core/kernels/attention/attention.h"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/profile.h"
#include "model/generate/key_value_cache.h"

namespace slackline {

namespace {

using Kind = BlockHalf::Kind;

// The names that GPT-2 gives the parameters of a half, and the site where its branch is dropped
// out.
struct HalfNames {
  const char* norm;
  const char* first;
  const char* last;
  const char* dropout;
};

constexpr HalfNames kAttentionNames{
    .norm = ".ln_1", .first = ".attn.c_attn", .last = ".attn.c_proj", .dropout = ".attn.resid"};
constexpr HalfNames kMlpNames{
    .norm = ".ln_2", .first = ".mlp.c_fc", .last = ".mlp.c_proj", .dropout = ".mlp.resid"};

constexpr const HalfNames& names_of(Kind kind) {
  return kind == Kind::attention ? kAttentionNames : kMlpNames;
}

// Columns of HalfActivations::wide and inner.
struct HalfColumns {
  std::int64_t wide;
  std::int64_t inner;
};

HalfColumns columns_of(Kind kind, const ModelConfig& config, const LayerShape& shape) {
  if (kind == Kind::attention) {
    return {.wide = 3 * shape.width(config), .inner = shape.width(config)};
  }
  return {.wide = shape.ffn(config), .inner = shape.ffn(config)};
}

std::size_t workspace_bytes_of(Kind kind,
                               const ModelConfig& config,
                               const LayerShape& shape,
                               const Workers& workers) {
  const std::int64_t N = shape.num_tokens();
  const std::int64_t C = config.hidden;
  const HalfColumns columns = columns_of(kind, config, shape);
  const DType dtype = shape.dtype;
  const std::size_t held = Arena::aligned_bytes(dtype, {N, C}) +
                           Arena::aligned_bytes(shape.partial(), {N, C}) +
                           Arena::aligned_bytes(dtype, {N, columns.wide}) + shape.whole_bytes(C);
  const std::size_t attention = kind == Kind::attention
                                    ? attention_workspace_bytes({.B = shape.batch.B,
                                                                 .T = shape.batch.T,
                                                                 .H = shape.heads(config),
                                                                 .D = config.head_dim(),
                                                                 .dtype = dtype},
                                                                workers)
                                    : 0;
  return held +
         std::max({Linear::workspace_bytes(N, {C, columns.wide}, dtype, shape.partial(), workers),
                   Linear::workspace_bytes(N, {columns.inner, C}, dtype, shape.partial(), workers),
                   attention,
                   layer_norm_workspace_bytes(shape.num_rows(), C, workers)});
}

// out = x + dropout(branch), and the norm of it, if one follows. branch is (N, C), of which the
// rows that this rank owns count; x and out are (n, C).
void add_to_residual(const Pass& pass,
                     const std::string& site,
                     const Tensor& branch,
                     const Tensor& x,
                     const Tensor& out,
                     const std::optional<FollowingNorm>& next) {
  const DropoutAdd sum = pass.dropout_rows(site, pass.sum->own_rows(branch), out, x);
  if (next) {
    pass.before_norm(next->part, next->layer);
    next->norm.forward(pass.stream, sum, next->kept);
  } else {
    const ProfileRange range(pass.stream, "residual");
    dropout_add(pass.stream, sum);
  }
}

// Returns the gradient of branch (N, C), all rows of it, from d_residual (n, C). Written to `into`
// when that is given; else it lies in scratch, or is d_residual itself where nothing has to be
// done.
Tensor branch_gradient(const Pass& pass,
                       const std::string& site,
                       const Tensor& d_residual,
                       const Tensor& into,
                       ArenaScope& scratch) {
  if (pass.dropout == 0.0F && !pass.sum->share().sequence_parallel && into.empty()) {
    return d_residual;
  }
  const ProfileRange range(pass.stream, "residual");
  const Tensor whole =
      into.empty() ? scratch.allocate(d_residual.dtype(), {pass.num_tokens(), d_residual.dim(1)})
                   : into;
  const Tensor rows = pass.sum->own_rows(whole);
  if (pass.dropout > 0.0F) {
    dropout_add(pass.stream, pass.dropout_rows(site, d_residual, rows));
  } else {
    cast(pass.stream, d_residual, rows);
  }
  pass.sum->gather(rows, whole).wait();
  return whole;
}

}  // namespace

BlockHalf::BlockHalf(Parameters& parameters, const ModelConfig& config, int layer, Kind kind)
    : kind_(kind),
      layer_(layer),
      num_heads_(config.heads / parameters.slice().tensor_size),
      first_head_(std::int64_t{num_heads_} * parameters.slice().tensor_rank),
      site_("h." + std::to_string(layer)),
      norm_(parameters, site_ + names_of(kind).norm),
      first_(parameters, site_ + names_of(kind).first),
      last_(parameters, site_ + names_of(kind).last) {}

HalfActivations BlockHalf::allocate(Arena& arena,
                                    const ModelConfig& config,
                                    const LayerShape& shape,
                                    Kind kind) {
  const std::int64_t N = shape.num_tokens();
  const HalfColumns columns = columns_of(kind, config, shape);
  HalfActivations kept{
      .norm = allocate_norm_activations(arena, shape.num_rows(), config.hidden, shape.dtype),
      .wide = arena.allocate(shape.dtype, {N, columns.wide}),
      .inner = arena.allocate(shape.dtype, {N, columns.inner})};
  if (kind == Kind::attention) {
    kept.log_sum_exp =
        arena.allocate(DType::f32, {shape.batch.B, shape.heads(config), shape.batch.T});
  }
  return kept;
}

HalfGradients BlockHalf::allocate_gradients(Arena& arena,
                                            const ModelConfig& config,
                                            const LayerShape& shape,
                                            Kind kind) {
  const std::int64_t N = shape.num_tokens();
  return {.d_projected = arena.allocate(shape.dtype, {N, config.hidden}),
          .d_wide = arena.allocate(shape.dtype, {N, columns_of(kind, config, shape).wide})};
}

std::size_t BlockHalf::workspace_bytes(const ModelConfig& config,
                                       const LayerShape& shape,
                                       const Workers& workers) {
  return std::max(workspace_bytes_of(Kind::attention, config, shape, workers),
                  workspace_bytes_of(Kind::mlp, config, shape, workers));
}

void BlockHalf::attend(const Pass& pass, const HalfActivations& kept) const {
  const ProfileRange range(pass.stream, "attention");
  const AttentionForward args{.qkv = pass.by_sequence(kept.wide),
                              .output = pass.by_sequence(kept.inner),
                              .log_sum_exp = kept.log_sum_exp,
                              .num_heads = num_heads_,
                              .dropout = pass.dropout_key(site_ + ".attn"),
                              .first_head = first_head_};
  if (pass.cache == nullptr) {
    attention_forward(pass.stream, args);
  } else {
    pass.cache->attend(pass.stream, layer_, pass.first_position, args);
  }
}

void BlockHalf::attend_backward(const Pass& pass,
                                const HalfActivations& kept,
                                const Tensor& d_context,
                                const Tensor& d_qkv) const {
  const ProfileRange range(pass.stream, "attention");
  attention_backward(pass.stream,
                     {.qkv = pass.by_sequence(kept.wide),
                      .output = pass.by_sequence(kept.inner),
                      .log_sum_exp = kept.log_sum_exp,
                      .d_output = pass.by_sequence(d_context),
                      .d_qkv = pass.by_sequence(d_qkv),
                      .num_heads = num_heads_,
                      .dropout = pass.dropout_key(site_ + ".attn"),
                      .first_head = first_head_});
}

void BlockHalf::expand(const Pass& pass, const HalfActivations& kept) const {
  const bool attends = kind_ == Kind::attention;
  {
    ArenaScope scratch(pass.stream.workspace());
    const Tensor y = pass.sum->share().allocate_whole(scratch, kept.norm.y);
    pass.sum->gather(kept.norm.y, y).wait();
    first_.forward(pass.stream, y, kept.wide, attends ? Tensor{} : kept.inner);
  }
  if (attends) {
    attend(pass, kept);
  }
}

void BlockHalf::forward(const Pass& pass,
                        const Tensor& x,
                        const HalfActivations& kept,
                        const Tensor& out,
                        const std::optional<FollowingNorm>& next) const {
  expand(pass, kept);
  ArenaScope scratch(pass.stream.workspace());
  const Tensor projected =
      scratch.allocate(pass.sum->share().partial(x.dtype()), {pass.num_tokens(), x.dim(1)});
  last_.forward(pass.stream, kept.inner, projected);
  pass.sum->sum(projected).wait();
  add_to_residual(pass, site_ + names_of(kind_).dropout, projected, x, out, next);
}

void BlockHalf::backward(const Pass& pass,
                         const Tensor& x,
                         const HalfActivations& kept,
                         const HalfGradients& later,
                         const Tensor& d_residual) const {
  const StreamView stream = pass.stream;
  const bool attends = kind_ == Kind::attention;
  const bool weights_now = later.d_wide.empty();
  ArenaScope scratch(stream.workspace());
  const Tensor d_projected = branch_gradient(
      pass, site_ + names_of(kind_).dropout, d_residual, later.d_projected, scratch);
  const Tensor d_norm =
      scratch.allocate(pass.sum->share().partial(x.dtype()), {pass.num_tokens(), x.dim(1)});
  const Tensor d_wide = weights_now ? scratch.allocate(x.dtype(), kept.wide.shape()) : later.d_wide;
  // The gradient of attention's result is used up before d_norm is made, and no larger. The MLP's
  // last product makes d_wide at once.
  const Tensor d_inner =
      attends ? Tensor(d_norm.raw(), x.dtype(), kept.inner.shape(), d_norm.device()) : d_wide;

  last_.backward_input(stream, d_projected, d_inner, attends ? Tensor{} : kept.wide);
  if (weights_now) {
    last_.backward_weight(stream, kept.inner, d_projected, pass.accumulate);
  }
  if (attends) {
    attend_backward(pass, kept, d_inner, d_wide);
  }
  first_.backward_input(stream, d_wide, d_norm);
  Transfer sum = pass.sum->sum(d_norm);
  if (weights_now) {
    const Tensor y = pass.sum->share().allocate_whole(scratch, kept.norm.y);
    pass.sum->gather(kept.norm.y, y).wait();
    first_.backward_weight(stream, y, d_wide, pass.accumulate);
  }
  sum.wait();
  norm_.backward(stream, x, kept.norm, pass.sum->own_rows(d_norm), d_residual, Accumulate::yes);
}

void BlockHalf::backward_weight(const Pass& pass,
                                const HalfActivations& kept,
                                const HalfGradients& later) const {
  ArenaScope scratch(pass.stream.workspace());
  const Tensor y = pass.sum->share().allocate_whole(scratch, kept.norm.y);
  Transfer gathered = pass.sum->gather(kept.norm.y, y);
  last_.backward_weight(pass.stream, kept.inner, later.d_projected, pass.accumulate);
  gathered.wait();
  first_.backward_weight(pass.stream, y, later.d_wide, pass.accumulate);
}

}  // namespace slackline
