#include "model/embedding.h"

#include "tests/model/vocabulary_shards.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// 24 tokens: over 2, 3 and 4 ranks, slices of 12, 8 and 6 rows begin inside samples of 8 tokens.
constexpr std::int64_t kB = 3;
constexpr std::int64_t kT = 8;
constexpr std::int64_t kN = kB * kT;

ModelConfig embedding_config(bool tied) {
  return {.hidden = 19, .sequence = 10, .vocab = 37, .tie_embeddings = tied};
}

// What one rank ends with. Rows of the residual stream and of the token table are its own.
struct Result {
  std::vector<double> out, d_tokens, d_positions;
  std::size_t workspace = 0;
};

struct Setting {
  DType compute = DType::f32;
  bool tied = true;
  float dropout = 0.3F;
};

Result run(const Setting& setting, TensorSum& sum) {
  const ModelConfig config = embedding_config(setting.tied);
  const std::int64_t C = config.hidden;
  Parameters parameters = vocabulary_share(config, setting.compute, sum.share());
  const std::size_t bytes = Embedding::workspace_bytes(
      config, {.batch = {.B = kB, .T = kT}, .dtype = setting.compute, .share = sum.share()}, 2);
  Stream stream(test_stream(2, bytes));
  TokenBatch batch(kB, kT, config.vocab);
  Pass pass = batch.pass(stream, sum);
  pass.dropout = setting.dropout;
  Embedding embedding(parameters);

  GuardedTensor out(setting.compute, {sum.share().num_rows(kN), C});
  embedding.forward(pass, out);
  Result result{.out = out.values(), .d_tokens = {}, .d_positions = {}};

  GuardedTensor dy = random_tensor(setting.compute, {kN, C}, {.seed = 9});
  GuardedTensor d_out(setting.compute, {sum.share().num_rows(kN), C}, values_of(sum.own_rows(dy)));
  // The head's gradient of a tied table, to which the input's is added.
  Parameter& table = parameters.at("wte.weight");
  for (float& value : table.gradient.span<float>()) {
    value = 0.125F;
  }
  embedding.backward(pass, d_out);
  embedding.finish_gradient(stream);
  result.d_tokens = values_of(table.gradient);
  result.d_positions = values_of(parameters.at("wpe.weight").gradient);
  result.workspace = stream.workspace().high_water();
  SL_CHECK_EQ(result.workspace, bytes);
  SL_CHECK(out.sentinels_intact(), "the embedding wrote beyond its rows");
  return result;
}

}  // namespace

TEST_CASE("an embedding spread over tensor ranks has the bits of one rank, gradients included") {
  for (const Setting& setting : {Setting{},
                                 Setting{.dropout = 0.0F},
                                 Setting{.tied = false},
                                 Setting{.compute = DType::bf16},
                                 Setting{.compute = DType::bf16, .tied = false, .dropout = 0.0F}}) {
    NoTensorSum one_rank;
    const Result whole = run(setting, one_rank);
    for (const TensorRanks& ranks : kTensorLayouts) {
      INFO(name_of(setting.compute) << ", dropout " << setting.dropout << ", " << ranks.size
                                    << " ranks, sequence parallel " << ranks.sequence_parallel);
      std::vector<Result> results(static_cast<std::size_t>(ranks.size));
      run_tensor_ranks(ranks, [&](TensorSum& sum) {
        results[static_cast<std::size_t>(sum.share().rank)] = run(setting, sum);
      });
      std::vector<double> out;
      std::vector<double> d_tokens;
      for (const Result& result : results) {
        REQUIRE(result.d_positions == whole.d_positions);
        append(d_tokens, result.d_tokens);
        if (ranks.sequence_parallel) {
          append(out, result.out);
        } else {
          REQUIRE(result.out == whole.out);
        }
      }
      REQUIRE(d_tokens == whole.d_tokens);
      REQUIRE((!ranks.sequence_parallel || out == whole.out));
    }
  }
}

TEST_CASE("a tied table's input gradient is zero again once it has been added") {
  NoTensorSum one_rank;
  Parameters parameters = vocabulary_share(embedding_config(true), DType::f32, one_rank.share());
  Stream stream(test_stream(1));
  TokenBatch batch(kB, kT, embedding_config(true).vocab);
  const Pass pass = batch.pass(stream, one_rank);
  Embedding embedding(parameters);
  GuardedTensor d_out = random_tensor(DType::f32, {kN, embedding_config(true).hidden}, {});
  embedding.backward(pass, d_out);
  const std::vector<double> zeros(parameters.input_gradient().num_elements());
  REQUIRE(values_of(parameters.input_gradient()) != zeros);
  embedding.finish_gradient(stream);
  REQUIRE(values_of(parameters.input_gradient()) == zeros);
}

}  // namespace slackline::testing
