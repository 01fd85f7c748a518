#include "model/cost/tensor_sums.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/kernels/loss/cross_entropy.h"
#include "model/head.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;

// Collects exchanges by the calls of TensorSum that start them.
class ExchangeList {
 public:
  ExchangeList(const ModelConfig& config, const Stage::Options& options)
      : shape_(options.layer_shape(options.micro_batch)), columns_(config.hidden) {}

  // A sum of partial products, TensorSum::sum.
  TensorExchange& sum(PassKind pass, std::string_view what) {
    return add({.pass = pass,
                .kind = cut() ? Kind::reduce_scatter : Kind::all_reduce,
                .what = what,
                .tokens = shape_.num_tokens(),
                .columns = columns_,
                .element_bytes = size_of(shape_.partial())});
  }

  // All of an activation of which each rank has a part: its rows, TensorSum::gather, or the slice
  // that arrived over the pipeline.
  TensorExchange& gather(PassKind pass, std::string_view what) {
    return add({.pass = pass,
                .kind = Kind::all_gather,
                .what = what,
                .tokens = shape_.num_tokens(),
                .columns = columns_,
                .element_bytes = size_of(shape_.dtype)});
  }

  // All rows of an activation, TensorSum::gather; where they are not cut, nothing travels.
  void gather_rows(PassKind pass, std::string_view what) {
    if (cut()) {
      gather(pass, what);
    }
  }

  // Every rank's statistics of some tokens, TensorSum::collect.
  void collect(PassKind pass, std::string_view what, std::int64_t tokens) {
    add({.pass = pass,
         .kind = Kind::all_gather,
         .what = what,
         .tokens = tokens,
         .columns = shape_.share.size * kSoftmaxStatistics,
         .element_bytes = size_of(DType::f32)});
  }

  // Whether rows of the residual stream are cut over the ranks.
  [[nodiscard]] bool cut() const { return shape_.share.sequence_parallel; }

  [[nodiscard]] std::int64_t num_tokens() const { return shape_.num_tokens(); }

  [[nodiscard]] const TensorShare& share() const { return shape_.share; }

  [[nodiscard]] std::vector<TensorExchange> take() { return std::move(exchanges_); }

 private:
  TensorExchange& add(const TensorExchange& exchange) {
    exchanges_.push_back(exchange);
    return exchanges_.back();
  }

  LayerShape shape_;
  std::int64_t columns_;
  std::vector<TensorExchange> exchanges_{};
};

void set_beside(TensorExchange& exchange, WeightProduct product, std::int64_t tokens) {
  exchange.beside = product;
  exchange.beside_tokens = tokens;
}

// One half of a block: attention or mlp. `first` reads all rows of the norm's output, `last` makes
// partial sums of the half's output.
struct Half {
  std::string_view input;
  std::string_view recomputed_input;
  std::string_view output;
  std::string_view output_gradient;
  std::string_view input_gradient;
  std::string_view input_for_weights;
  WeightProduct first;
  WeightProduct last;
};

constexpr Half kAttention{.input = "attention input",
                          .recomputed_input = "recomputed attention input",
                          .output = "attention output",
                          .output_gradient = "gradient of attention output",
                          .input_gradient = "input gradient of qkv",
                          .input_for_weights = "attention input for weight gradients",
                          .first = WeightProduct::qkv,
                          .last = WeightProduct::attention_projection};

constexpr Half kMlp{.input = "mlp input",
                    .recomputed_input = "recomputed mlp input",
                    .output = "mlp output",
                    .output_gradient = "gradient of mlp output",
                    .input_gradient = "input gradient of expansion",
                    .input_for_weights = "mlp input for weight gradients",
                    .first = WeightProduct::expansion,
                    .last = WeightProduct::mlp_projection};

void add_forward(ExchangeList& list, const Half& half) {
  list.gather_rows(PassKind::forward, half.input);
  list.sum(PassKind::forward, half.output);
}

// The sum of a half's input gradient travels beside the weight gradient of its first product. If
// rows are cut, that gradient has to wait for the rows behind the sum, so nothing hides either.
void add_backward(ExchangeList& list, const Half& half, Stage::WeightGradients weight_gradients) {
  const bool weights_now = weight_gradients == Stage::WeightGradients::now;
  list.gather_rows(PassKind::backward_input, half.output_gradient);
  TensorExchange& sum = list.sum(PassKind::backward_input, half.input_gradient);
  if (weights_now && list.cut()) {
    list.gather(PassKind::backward_input, half.input_for_weights).behind_previous = true;
  } else if (weights_now) {
    set_beside(sum, half.first, list.num_tokens());
  }
}

// All rows of the half's input arrive while the weight gradient of its last product is made.
void add_backward_weight(ExchangeList& list, const Half& half) {
  if (list.cut()) {
    set_beside(list.gather(PassKind::backward_weight, half.input_for_weights),
               half.last,
               list.num_tokens());
  }
}

// The functions below list the exchanges of one part by several tensor ranks: first those of the
// forward pass, then of backward_input, then of backward_weight.

// Lookups are summed as they are: of each element one rank alone has something.
std::vector<TensorExchange> embedding_exchanges(const ModelConfig& config,
                                                const Stage::Options& options) {
  ExchangeList list(config, options);
  list.sum(PassKind::forward, "embedded tokens").element_bytes = size_of(options.compute);
  list.gather_rows(PassKind::backward_input, "gradient of embedded tokens");
  return list.take();
}

std::vector<TensorExchange> layer_exchanges(const ModelConfig& config,
                                            const Stage::Options& options) {
  ExchangeList list(config, options);
  add_forward(list, kAttention);
  add_forward(list, kMlp);
  if (config.recompute == Recompute::block) {
    // The forward pass again but for its last sum, whose result is the input of the next block.
    list.gather_rows(PassKind::backward_input, kAttention.recomputed_input);
    list.sum(PassKind::backward_input, "recomputed attention output");
    list.gather_rows(PassKind::backward_input, kMlp.recomputed_input);
  }
  add_backward(list, kMlp, options.weight_gradients);
  add_backward(list, kAttention, options.weight_gradients);
  if (options.weight_gradients == Stage::WeightGradients::later) {
    add_backward_weight(list, kMlp);
    add_backward_weight(list, kAttention);
  }
  return list.take();
}

// The gradient of the table is made with that of the input, whatever becomes of the layers'. The
// sum of the input gradient travels beside the last chunk's.
std::vector<TensorExchange> head_exchanges(const ModelConfig& config,
                                           const Stage::Options& options) {
  ExchangeList list(config, options);
  list.gather_rows(PassKind::backward_input, "head input");
  const std::int64_t N = list.num_tokens();
  const std::int64_t chunk = Head::chunk_tokens(N, config.vocab, options.device, list.share());
  std::int64_t last_chunk = 0;
  for (std::int64_t begin = 0; begin < N; begin += chunk) {
    last_chunk = std::min(chunk, N - begin);
    list.collect(PassKind::backward_input, "softmax statistics", last_chunk);
  }
  set_beside(list.sum(PassKind::backward_input, "input gradient of head"),
             WeightProduct::logits,
             last_chunk);
  return list.take();
}

// The input of a chunk without embedding and the output gradient of one without head arrive over
// the pipeline axis. Each tensor rank receives its slice; with sequence parallelism that is all it
// needs, else the slices are gathered before the pass.
std::vector<TensorExchange> boundary_exchanges(const ModelConfig& config,
                                               const Stage::Options& options,
                                               const ChunkSlice& chunk) {
  ExchangeList list(config, options);
  if (list.cut()) {
    return {};
  }
  if (!chunk.embedding) {
    list.gather(PassKind::forward, "stage input");
  }
  if (!chunk.head) {
    list.gather(PassKind::backward_input, "gradient of stage output");
  }
  return list.take();
}

void append(std::vector<TensorExchange>& to,
            const std::vector<TensorExchange>& from,
            PassKind pass) {
  std::copy_if(from.begin(), from.end(), std::back_inserter(to), [&](const TensorExchange& one) {
    return one.pass == pass;
  });
}

}  // namespace

std::vector<TensorExchange> chunk_exchanges(const ModelConfig& config,
                                            const Stage::Options& options) {
  if (options.share.size == 1) {
    return {};
  }
  const ChunkSlice chunk = options.chunk.value_or(whole_chunk(config));
  const std::vector<TensorExchange> boundary = boundary_exchanges(config, options, chunk);
  const std::vector<TensorExchange> embedding =
      chunk.embedding ? embedding_exchanges(config, options) : std::vector<TensorExchange>{};
  const std::vector<TensorExchange> layer = layer_exchanges(config, options);
  const std::vector<TensorExchange> head =
      chunk.head ? head_exchanges(config, options) : std::vector<TensorExchange>{};
  std::vector<TensorExchange> exchanges;
  const auto append_layers = [&](PassKind pass) {
    for (int i = 0; i < chunk.num_layers(); ++i) {
      append(exchanges, layer, pass);
    }
  };
  append(exchanges, boundary, PassKind::forward);
  append(exchanges, embedding, PassKind::forward);
  append_layers(PassKind::forward);
  append(exchanges, boundary, PassKind::backward_input);
  append(exchanges, head, PassKind::backward_input);
  append_layers(PassKind::backward_input);
  append(exchanges, embedding, PassKind::backward_input);
  append_layers(PassKind::backward_weight);
  return exchanges;
}

}  // namespace slackline
