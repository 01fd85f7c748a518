#include "tools/infer/evaluation.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

constexpr int kVocab = 5;
constexpr int kSequence = 3;
constexpr float kSharpness = 0.75F;

// Tokens in memory, as one sequence.
class TokensInMemory final : public TokenFile {
 public:
  explicit TokensInMemory(std::vector<TokenId> tokens) : memory_(std::move(tokens)) {
    tokens_ = TokenArray(std::as_bytes(std::span(memory_)), TokenWidth::four);
  }

  [[nodiscard]] const std::string& path() const override { return path_; }

  [[nodiscard]] std::uint64_t num_sequences() const override { return 1; }

  [[nodiscard]] std::uint64_t sequence_start(std::uint64_t sequence) const override {
    return sequence == 0 ? 0 : tokens_.size();
  }

 private:
  std::string path_ = "memory";
  std::vector<TokenId> memory_;
};

// A model that expects token v + 1 after token v, whatever came before: blocks add nothing, the
// token table is one-hot, and the head looks the successor up. LayerNorm turns a one-hot row of 5
// into 2 at the token and -1/2 elsewhere (times 1 - 3e-5 for epsilon), so the logits are
// 2 kSharpness for the successor and -kSharpness / 2 for the others.
struct SuccessorModel {
  ModelConfig config{.layers = 1,
                     .hidden = kVocab,
                     .heads = 1,
                     .sequence = kSequence,
                     .vocab = kVocab,
                     .ffn = 4,
                     .tie_embeddings = false};
  Parameters parameters{config, {.gradients = Gradients::none}};

  SuccessorModel() {
    for (Parameter& parameter : parameters.all()) {
      const std::span<float> weight = parameter.weight.span<float>();
      const bool norm = parameter.spec.role == ParameterRole::norm_weight;
      std::fill(weight.begin(), weight.end(), norm ? 1.0F : 0.0F);
    }
    for (std::size_t v = 0; v < kVocab; ++v) {
      parameters.at("wte.weight").weight.data<float>()[v * kVocab + v] = 1.0F;
      const std::size_t next = (v + 1) % kVocab;
      parameters.at("lm_head.weight").weight.data<float>()[next * kVocab + v] = kSharpness;
    }
  }

  static double expected_loss(int right, int wrong) {
    const double gap = 2.5 * kSharpness;
    const double loss_of_right = std::log(1.0 + 4.0 * std::exp(-gap));
    return (right * loss_of_right + wrong * (loss_of_right + gap)) / (right + wrong);
  }

  Evaluation evaluate(const std::vector<TokenId>& tokens,
                      std::optional<std::int64_t> max_batches = {}) {
    return evaluate_tokens(
        parameters, config, TokensInMemory(tokens), {.max_batches = max_batches});
  }
};

std::vector<TokenId> counting_tokens(std::size_t count) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(i % kVocab));
  }
  return tokens;
}

constexpr double kTolerance = 1e-4;  // LayerNorm's epsilon, above

}  // namespace

TEST_CASE("window k predicts tokens kT+1 .. kT+T, and a last partial window is dropped") {
  SuccessorModel model;
  // 12 tokens: 3 windows predict 1 .. 9. Tokens 10 and 11 belong to no whole window.
  const std::vector<TokenId> tokens = counting_tokens(12);
  const Evaluation all_right = model.evaluate(tokens);
  CHECK(all_right.tokens == 9);
  CHECK(all_right.loss == Approx(SuccessorModel::expected_loss(9, 0)).epsilon(kTolerance));

  for (std::size_t changed = 0; changed < tokens.size(); ++changed) {
    // A changed token spoils its own prediction (if it is predicted) and that of the next one (if
    // it is an input); the first token is an input alone, the ninth a target alone.
    std::vector<TokenId> spoiled = tokens;
    spoiled[changed] = (spoiled[changed] + 2) % kVocab;
    const int wrong = (changed >= 1 && changed <= 9 ? 1 : 0) + (changed <= 8 ? 1 : 0);
    INFO("token " << changed);
    CHECK(model.evaluate(spoiled).loss ==
          Approx(SuccessorModel::expected_loss(9 - wrong, wrong)).epsilon(kTolerance));
  }
}

TEST_CASE("the number of windows does not depend on how they are batched") {
  SuccessorModel model;
  for (const std::int64_t windows : {1, 7, 8, 9, 16, 19}) {
    std::vector<TokenId> tokens = counting_tokens(static_cast<std::size_t>(windows * 3 + 1));
    tokens.back() = (tokens.back() + 1) % kVocab;  // one wrong prediction, the last
    const Evaluation result = model.evaluate(tokens);
    INFO(windows << " windows");
    CHECK(result.tokens == windows * 3);
    CHECK(result.loss == Approx(SuccessorModel::expected_loss(static_cast<int>(windows * 3 - 1), 1))
                             .epsilon(kTolerance));
  }
}

TEST_CASE("a limit counts batches of 8 windows") {
  SuccessorModel model;
  const std::vector<TokenId> tokens = counting_tokens(20 * 3 + 1);
  CHECK(model.evaluate(tokens, 1).tokens == 24);
  CHECK(model.evaluate(tokens, 2).tokens == 48);
  CHECK(model.evaluate(tokens, 3).tokens == 60);
  CHECK(model.evaluate(tokens, std::numeric_limits<std::int64_t>::max()).tokens == 60);
}

TEST_CASE("progress ends at the number of windows") {
  SuccessorModel model;
  std::vector<std::int64_t> seen;
  std::int64_t announced = 0;
  static_cast<void>(evaluate_tokens(model.parameters,
                                    model.config,
                                    TokensInMemory(counting_tokens(10 * 3 + 1)),
                                    {.progress = [&](std::int64_t done, std::int64_t total) {
                                      seen.push_back(done);
                                      announced = total;
                                    }}));
  CHECK(seen == std::vector<std::int64_t>{8, 10});
  CHECK(announced == 10);
}

TEST_CASE("perplexity is e to the loss") {
  CHECK(Evaluation{.loss = std::log(50.0), .tokens = 1}.perplexity() == Approx(50.0));
}

TEST_CASE("tokens too few for a window, and a loss that is not finite, are errors") {
  SuccessorModel model;
  for (const std::size_t count : {0U, 1U, 3U}) {
    CHECK_THROWS_AS(model.evaluate(counting_tokens(count)), FileError);
  }
  CHECK_THROWS_WITH(model.evaluate(counting_tokens(3)),
                    "memory: evaluation needs at least sequence + 1 = 4 tokens; got 3");
  CHECK(model.evaluate(counting_tokens(4)).tokens == 3);

  model.parameters.at("ln_f.bias").weight.data<float>()[0] =
      std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(model.evaluate(counting_tokens(4)), NonFiniteError);
}

}  // namespace slackline
