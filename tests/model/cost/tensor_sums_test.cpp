#include "model/cost/tensor_sums.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "core/comm/collective_bytes.h"
#include "parallel/mesh/executor_bytes.h"
#include "parallel/mesh/stage_split.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

using Kind = TransferRecord::Kind;

constexpr std::string_view kStageInput = "stage input";
constexpr std::string_view kStageGradient = "gradient of stage output";

// The product whose weight gradient a parameter has; absent for all but matrices and the table.
std::optional<WeightProduct> product_of(const std::string& name) {
  const std::map<std::string, WeightProduct> products{
      {"attn.c_attn.weight", WeightProduct::qkv},
      {"attn.c_proj.weight", WeightProduct::attention_projection},
      {"mlp.c_fc.weight", WeightProduct::expansion},
      {"mlp.c_proj.weight", WeightProduct::mlp_projection},
      {"wte.weight", WeightProduct::logits}};
  for (const auto& [end, product] : products) {
    if (name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
      return product;
    }
  }
  return std::nullopt;
}

// One of several tensor ranks, alone: it notes what the stage exchanges and puts its own data in
// the place of the others'. Exchanges end in the order in which they are posted, as those of a
// communicator do. What changes in the meantime is computed beside them.
class RecordingSum final : public TensorSum {
 public:
  RecordingSum(const TensorShare& share, Parameters& parameters)
      : TensorSum(share.rank, share.size, share.sequence_parallel), parameters_(&parameters) {}

  void set_pass(PassKind pass) { pass_ = pass; }

  Transfer sum(const Tensor& partial) override {
    return post(share().sequence_parallel ? Kind::reduce_scatter : Kind::all_reduce,
                {partial.dim(0), partial.dim(1)},
                partial.dtype());
  }

  Transfer gather(const Tensor& rows, const Tensor& whole) override {
    if (!share().sequence_parallel) {
      return {};
    }
    fill(rows, whole);
    return post(Kind::all_gather, {whole.dim(0), whole.dim(1)}, whole.dtype());
  }

  Transfer collect(const Tensor& own, const Tensor& all) override {
    fill(own, all);
    return post(Kind::all_gather, {all.dim(1), all.dim(0) * all.dim(2)}, all.dtype());
  }

  [[nodiscard]] const std::vector<TensorExchange>& exchanges() const { return exchanges_; }

 private:
  using Bits = std::vector<std::vector<std::byte>>;

  class Posted final : public Transfer::State {
   public:
    Posted(RecordingSum& sum, std::size_t index) : sum_(&sum), index_(index) {}

    void wait() override { sum_->end(index_); }

    [[nodiscard]] bool done() const override { return false; }

   private:
    RecordingSum* sum_;
    std::size_t index_;
  };

  void fill(const Tensor& part, const Tensor& whole) const {
    auto* to = static_cast<std::byte*>(whole.raw());
    const std::vector<std::byte> own(static_cast<const std::byte*>(part.raw()),
                                     static_cast<const std::byte*>(part.raw()) + part.bytes());
    for (int rank = 0; rank < share().size; ++rank) {
      std::memcpy(to + static_cast<std::size_t>(rank) * own.size(), own.data(), own.size());
    }
  }

  Transfer post(Kind kind, const Shape& shape, DType dtype) {
    exchanges_.push_back({.pass = pass_,
                          .kind = kind,
                          .tokens = shape[0],
                          .columns = shape[1],
                          .element_bytes = size_of(dtype),
                          .behind_previous = num_ended_ < exchanges_.size()});
    before_.push_back(weight_gradients());
    return Transfer(std::make_unique<Posted>(*this, exchanges_.size() - 1));
  }

  void end(std::size_t index) {
    const Bits now = weight_gradients();
    for (; num_ended_ <= index; ++num_ended_) {
      for (std::size_t i = 0; i < now.size(); ++i) {
        const auto product = product_of(parameters_->all()[i].spec.name);
        if (product && now[i] != before_[num_ended_][i]) {
          REQUIRE_FALSE(exchanges_[num_ended_].beside.has_value());
          exchanges_[num_ended_].beside = product;
        }
      }
      before_[num_ended_].clear();
    }
  }

  // The bits of every parameter's gradient.
  [[nodiscard]] Bits weight_gradients() const {
    Bits gradients;
    for (const Parameter& parameter : parameters_->all()) {
      const auto* begin = static_cast<const std::byte*>(parameter.gradient.raw());
      gradients.emplace_back(begin, begin + parameter.gradient.bytes());
    }
    return gradients;
  }

  Parameters* parameters_;
  PassKind pass_{};
  std::vector<TensorExchange> exchanges_{};
  std::vector<Bits> before_{};  // the gradients when each exchange was posted
  std::size_t num_ended_ = 0;
};

void randomize(const Tensor& tensor, std::uint64_t seed) {
  const std::vector<double> values =
      random_values(tensor.num_elements(), {.seed = seed, .deviation = 0.3});
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype() == DType::f32) {
      tensor.data<float>()[i] = static_cast<float>(values[i]);
    } else {
      tensor.data<BFloat16>()[i] = BFloat16(static_cast<float>(values[i]));
    }
  }
}

// What a stage exchanges for one micro-batch, in order.
std::vector<TensorExchange> recorded(const ModelConfig& config, const Stage::Options& options) {
  const ChunkSlice chunk = *options.chunk;
  Parameters parameters(config,
                        {.compute = options.compute,
                         .slice = ModelSlice{.tensor_rank = options.share.rank,
                                             .tensor_size = options.share.size,
                                             .chunks = {chunk}}});
  Stream stream(test_stream(2, Stage::workspace_bytes(config, options, 2)));
  for (Parameter& parameter : parameters.all()) {
    randomize(parameter.weight, parameter.spec.name.size());
    std::memset(parameter.gradient.raw(), 0, parameter.gradient.bytes());
  }
  parameters.refresh_copies(stream);
  Stage stage(parameters, config, options);
  ActivationSlot slot(Stage::activation_bytes(config, options));
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < options.micro_batch.num_tokens(); ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * i + 3) % config.vocab));
  }
  const BatchShape shape = options.micro_batch;
  RecordingSum sum(options.share, parameters);
  LossSum losses;
  const Pass pass{.stream = stream,
                  .sum = &sum,
                  .batch = {.tokens = Tensor(std::span(tokens)).reshaped({shape.B, shape.T}),
                            .targets = Tensor(std::span(tokens))},
                  .dropout = config.dropout,
                  .losses = &losses};
  stage.begin_step(stream);
  stage.prepare(slot, shape);
  randomize(stage.input(slot), 5);
  randomize(stage.gradient(slot), 6);
  sum.set_pass(PassKind::forward);
  stage.forward(pass, slot);
  sum.set_pass(PassKind::backward_input);
  stage.backward(pass, 0.1F, slot);
  if (options.weight_gradients == Stage::WeightGradients::later) {
    sum.set_pass(PassKind::backward_weight);
    stage.backward_weight(pass, slot);
  }
  return sum.exchanges();
}

// The list without what the pipeline executor gathers, which is no stage's.
std::vector<TensorExchange> listed(const ModelConfig& config, const Stage::Options& options) {
  std::vector<TensorExchange> exchanges = chunk_exchanges(config, options);
  exchanges.erase(std::remove_if(exchanges.begin(),
                                 exchanges.end(),
                                 [](const TensorExchange& exchange) {
                                   return exchange.what == kStageInput ||
                                          exchange.what == kStageGradient;
                                 }),
                  exchanges.end());
  return exchanges;
}

void check_same(const std::vector<TensorExchange>& list, const std::vector<TensorExchange>& run) {
  REQUIRE(list.size() == run.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    INFO("exchange " << i << ", " << list[i].what);
    CHECK(list[i].pass == run[i].pass);
    CHECK(list[i].kind == run[i].kind);
    CHECK(list[i].tokens == run[i].tokens);
    CHECK(list[i].columns == run[i].columns);
    CHECK(list[i].element_bytes == run[i].element_bytes);
    CHECK(list[i].beside == run[i].beside);
    CHECK(list[i].behind_previous == run[i].behind_previous);
  }
}

constexpr ModelConfig kConfig{
    .layers = 4, .hidden = 12, .heads = 6, .sequence = 6, .vocab = 11, .ffn = 18};

constexpr ChunkSlice kOnly{.last_layer = 4, .embedding = true, .head = true};
constexpr ChunkSlice kFirst{.last_layer = 2, .embedding = true};
constexpr ChunkSlice kMiddle{.first_layer = 1, .last_layer = 3};
constexpr ChunkSlice kLast{.first_layer = 3, .last_layer = 4, .head = true};

struct Layout {
  ChunkSlice chunk{};
  int ranks = 2;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  Stage::WeightGradients weight_gradients = Stage::WeightGradients::now;
  DType compute = DType::f32;

  [[nodiscard]] ModelConfig config() const {
    ModelConfig config = kConfig;
    config.recompute = recompute;
    return config;
  }

  [[nodiscard]] Stage::Options options() const {
    return {.micro_batch = {.B = 2, .T = 6},
            .compute = compute,
            .chunk = chunk,
            .share = {.rank = ranks - 1, .size = ranks, .sequence_parallel = sequence_parallel},
            .own_slot = false,
            .weight_gradients = weight_gradients};
  }
};

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const ChunkSlice& chunk : {kOnly, kFirst, kMiddle, kLast}) {
    for (const int ranks : {2, 3}) {
      for (const bool cut : {false, true}) {
        const Layout layout{.chunk = chunk, .ranks = ranks, .sequence_parallel = cut};
        all.push_back(layout);
        all.push_back(layout);
        all.back().recompute = Recompute::block;
        all.back().compute = DType::bf16;
        all.push_back(layout);
        all.back().weight_gradients = Stage::WeightGradients::later;
      }
    }
  }
  return all;
}

std::int64_t count(const std::vector<TensorExchange>& exchanges, PassKind pass, bool gathers) {
  return std::count_if(exchanges.begin(), exchanges.end(), [&](const TensorExchange& exchange) {
    return exchange.pass == pass && exchange.what != "softmax statistics" &&
           (exchange.kind == Kind::all_gather) == gathers;
  });
}

}  // namespace

TEST_CASE("the list of exchanges is what a stage posts, in its order, beside the same products") {
  for (const Layout& layout : layouts()) {
    INFO(layout.ranks << " ranks, layers " << layout.chunk.first_layer << " to "
                      << layout.chunk.last_layer << ", cut " << layout.sequence_parallel
                      << ", recompute " << (layout.recompute == Recompute::block) << ", later "
                      << (layout.weight_gradients == Stage::WeightGradients::later));
    check_same(listed(layout.config(), layout.options()),
               recorded(layout.config(), layout.options()));
  }
}

TEST_CASE("dropout exchanges nothing more") {
  for (const bool cut : {false, true}) {
    const Layout layout{.chunk = kOnly, .sequence_parallel = cut};
    ModelConfig config = layout.config();
    config.dropout = 0.1F;
    check_same(listed(config, layout.options()), recorded(config, layout.options()));
  }
}

TEST_CASE("a head in chunks exchanges statistics of each and sums beside the last one's product") {
  ModelConfig config{
      .layers = 1, .hidden = 4, .heads = 2, .sequence = 10, .vocab = 2'200'000, .ffn = 8};
  const Layout layout{.chunk = {.first_layer = 1, .last_layer = 1, .head = true}};
  Stage::Options options = layout.options();
  options.micro_batch = {.B = 2, .T = 10};
  const std::vector<TensorExchange> list = listed(config, options);
  check_same(list, recorded(config, options));
  REQUIRE(list.size() == 4);
  CHECK(list[2].tokens == 4);  // of 20: chunks of 8
  CHECK(list[3].tokens == 20);
  CHECK(list[3].beside_tokens == 4);
}

TEST_CASE("one tensor rank exchanges nothing") {
  CHECK(chunk_exchanges(kConfig, {.micro_batch = {.B = 2, .T = 6}}).empty());
  CHECK(chunk_exchanges(kConfig, {.micro_batch = {.B = 2, .T = 6}, .chunk = kMiddle}).empty());
}

// docs/schedule.md, "Bytes", has the same counts.
TEST_CASE("sums and gathers of each pass are as many as the closed form says") {
  for (const Layout& layout : layouts()) {
    const std::vector<TensorExchange> list = chunk_exchanges(layout.config(), layout.options());
    const std::int64_t layers = layout.chunk.num_layers();
    const bool cut = layout.sequence_parallel;
    const bool again = layout.recompute == Recompute::block;
    const bool later = layout.weight_gradients == Stage::WeightGradients::later;
    const std::int64_t e = layout.chunk.embedding ? 1 : 0;
    const std::int64_t h = layout.chunk.head ? 1 : 0;
    CHECK(count(list, PassKind::forward, false) == 2 * layers + e);
    CHECK(count(list, PassKind::forward, true) == (cut ? 2 * layers : 1 - e));
    CHECK(count(list, PassKind::backward_input, false) == (again ? 3 : 2) * layers + h);
    const std::int64_t inputs_again = cut ? 2 * layers : 0;
    CHECK(count(list, PassKind::backward_input, true) ==
          (cut ? (again ? 4 : 2) * layers + e + h + (later ? 0 : inputs_again) : 1 - h));
    CHECK(count(list, PassKind::backward_weight, false) == 0);
    CHECK(count(list, PassKind::backward_weight, true) == (later ? inputs_again : 0));
  }
}

}  // namespace slackline::testing
