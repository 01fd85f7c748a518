#include "model/head.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "core/kernels/loss/cross_entropy.h"
#include "tests/model/vocabulary_shards.h"
#include "tests/reference/cross_entropy_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"

namespace slackline::testing {

namespace {

constexpr float kScale = 0.25F;

struct Setting {
  std::int64_t B = 3;
  std::int64_t T = 8;
  std::int64_t C = 17;
  int vocab = 37;
  DType compute = DType::f32;
  bool tied = true;
  double held = 0.0;  // what the table's gradient holds before; 0: it is written
  int num_threads = 2;

  [[nodiscard]] ModelConfig config() const {
    return {.hidden = static_cast<int>(C),
            .sequence = static_cast<int>(T),
            .vocab = vocab,
            .tie_embeddings = tied};
  }

  [[nodiscard]] std::int64_t N() const { return B * T; }

  [[nodiscard]] GuardedTensor x() const { return random_tensor(compute, {N(), C}, {.seed = 1}); }
};

// What one rank ends with: its rows of d_x and of the table.
struct Result {
  double loss = 0.0;
  double loss_alone = 0.0;
  std::vector<double> table, d_x, d_table;
};

Result run(const Setting& setting, TensorSum& sum) {
  const ModelConfig config = setting.config();
  Parameters parameters = vocabulary_share(config, setting.compute, sum.share());
  const std::size_t bytes = Head::workspace_bytes(
      config,
      {.batch = {.B = setting.B, .T = setting.T}, .dtype = setting.compute, .share = sum.share()},
      setting.num_threads);
  Stream stream(test_stream(setting.num_threads, bytes));
  TokenBatch batch(setting.B, setting.T, setting.vocab);
  Pass pass = batch.pass(stream, sum);
  pass.accumulate = setting.held == 0.0 ? Accumulate::no : Accumulate::yes;
  const Head head(parameters, config);
  Parameter& table = parameters.at(setting.tied ? "wte.weight" : "lm_head.weight");
  for (float& value : table.gradient.span<float>()) {
    value = setting.held == 0.0 ? NAN : static_cast<float>(setting.held);
  }
  GuardedTensor all_x = setting.x();
  const Shape rows{sum.share().num_rows(setting.N()), setting.C};
  GuardedTensor x(setting.compute, rows, values_of(sum.own_rows(all_x)));
  GuardedTensor d_x(sum.share().partial(setting.compute), rows);
  Result result;
  LossSum losses;
  pass.losses = &losses;
  head.add_loss(pass, x, {.d_x = d_x, .scale = kScale});
  result.loss = losses.take(stream);
  SL_CHECK_EQ(stream.workspace().high_water(), bytes);
  SL_CHECK(d_x.sentinels_intact(), "the head wrote beyond its rows");
  head.add_loss(pass, x);
  result.loss_alone = losses.take(stream);
  result.table = values_of(table.compute());
  result.d_x = d_x.values();
  result.d_table = values_of(table.gradient);
  return result;
}

// f32: sums of at most 300 terms of order 1. bf16: the gradient of a logit rounds to 8 bits, at
// most 2^-9 of kScale, and d_x, a sum of them, once more on one rank.
Tolerance tolerance(DType dtype) {
  return dtype == DType::f32 ? Tolerance{.relative = 2e-6, .absolute = 2e-6}
                             : Tolerance{.relative = 0x1p-7, .absolute = 6e-3};
}

reference::CrossEntropy oracle_of(const Setting& setting) {
  const TokenBatch batch(setting.B, setting.T, setting.vocab);
  return {static_cast<std::size_t>(setting.C),
          static_cast<std::size_t>(setting.vocab),
          {batch.targets.begin(), batch.targets.end()}};
}

// Checks loss and gradients of the whole model, put together from the ranks', against the oracle.
void check(const Setting& setting, const Result& whole, const Tolerance& of_table) {
  const reference::CrossEntropy oracle = oracle_of(setting);
  const std::vector<double> x = setting.x().values();
  const std::vector<double> losses = oracle.losses(x, whole.table);
  const double loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  REQUIRE(std::abs(whole.loss - loss) <= 1e-6 * loss);
  REQUIRE(whole.loss_alone == whole.loss);
  auto expected = oracle.gradients(x, whole.table, kScale);
  for (double& value : expected.d_table) {
    value += setting.held;
  }
  REQUIRE(worst_mismatch(whole.d_x, expected.dx, tolerance(setting.compute)) == "");
  REQUIRE(worst_mismatch(whole.d_table, expected.d_table, of_table) == "");
}

void check(const Setting& setting, const Result& whole) {
  check(setting, whole, tolerance(setting.compute));
}

// Runs on the ranks' threads. All must have the same loss, and without sequence parallelism the
// same d_x, bit for bit.
Result run_on(const TensorRanks& ranks, const Setting& setting) {
  std::vector<Result> results(static_cast<std::size_t>(ranks.size));
  run_tensor_ranks(ranks, [&](TensorSum& sum) {
    results[static_cast<std::size_t>(sum.share().rank)] = run(setting, sum);
  });
  Result whole = results[0];
  for (std::size_t r = 1; r < results.size(); ++r) {
    REQUIRE(results[r].loss == whole.loss);
    REQUIRE(results[r].loss_alone == whole.loss);
    REQUIRE((ranks.sequence_parallel || results[r].d_x == results[0].d_x));
    append(whole.table, results[r].table);
    append(whole.d_table, results[r].d_table);
    if (ranks.sequence_parallel) {
      append(whole.d_x, results[r].d_x);
    }
  }
  return whole;
}

}  // namespace

TEST_CASE("the head's loss and gradients match the oracle") {
  for (const Setting& setting : {Setting{},
                                 Setting{.B = 1, .T = 1, .C = 1, .vocab = 1},
                                 Setting{.B = 5, .T = 14, .C = 32, .vocab = 300},
                                 Setting{.tied = false, .held = 2.0},
                                 Setting{.compute = DType::bf16},
                                 Setting{.vocab = 257, .compute = DType::bf16, .held = 1.0}}) {
    INFO(name_of(setting.compute) << " " << setting.N() << " x " << setting.C << " x "
                                  << setting.vocab);
    NoTensorSum one_rank;
    check(setting, run(setting, one_rank));
  }
}

TEST_CASE("a head spread over tensor ranks matches the oracle, and all ranks have one loss") {
  for (const Setting& setting : {Setting{},
                                 Setting{.vocab = 5, .tied = false},
                                 Setting{.vocab = 257, .held = 2.0},
                                 Setting{.compute = DType::bf16}}) {
    for (const TensorRanks& ranks : kTensorLayouts) {
      INFO(name_of(setting.compute) << " " << setting.vocab << " tokens on " << ranks.size
                                    << " ranks, sequence parallel " << ranks.sequence_parallel);
      check(setting, run_on(ranks, setting));
    }
  }
}

TEST_CASE("the loss of one rank is that of several within rounding") {
  const Setting setting{.vocab = 257};
  NoTensorSum one_rank;
  const double loss = run(setting, one_rank).loss;
  for (const TensorRanks& ranks : kTensorLayouts) {
    REQUIRE(std::abs(run_on(ranks, setting).loss - loss) <= 2e-7 * loss);
  }
}

TEST_CASE("a head that works in chunks agrees with the oracle") {
  // Logits of 17000 x 1000 pass the chunk's size.
  const Setting setting{.B = 17, .T = 1000, .C = 1, .vocab = 1000};
  REQUIRE(cross_entropy_chunk_tokens(setting.N(), setting.vocab, Device::cpu) < setting.N());
  NoTensorSum one_rank;
  // d_table: sums over 17000 rows of terms of order 0.1.
  check(setting, run(setting, one_rank), {.relative = 1e-5, .absolute = 1e-4});
}

TEST_CASE("ranks with unequal parts of the vocabulary work in the same chunks") {
  const Setting setting{.B = 67, .T = 500, .C = 1, .vocab = 1001};
  REQUIRE(cross_entropy_chunk_tokens(setting.N(), 501, Device::cpu) < setting.N());
  REQUIRE(cross_entropy_chunk_tokens(setting.N(), 500, Device::cpu) >
          setting.N());  // what it must not use
  NoTensorSum one_rank;
  const Result whole = run(setting, one_rank);
  const Result shared = run_on({2, true}, setting);
  REQUIRE(std::abs(shared.loss - whole.loss) <= 2e-7 * whole.loss);
  REQUIRE(worst_mismatch(shared.d_x, whole.d_x, tolerance(DType::f32)) == "");
  // Sums over 33500 rows of terms of order 0.1, in other chunks.
  REQUIRE(worst_mismatch(shared.d_table, whole.d_table, {1e-5, 1e-4}) == "");
}

TEST_CASE("the head gives the same bits on any number of threads") {
  for (const DType compute : {DType::f32, DType::bf16}) {
    Setting setting{.B = 5, .T = 14, .C = 32, .vocab = 1000, .compute = compute};
    NoTensorSum one_rank;
    setting.num_threads = 1;
    const Result expected = run(setting, one_rank);
    for (const int num_threads : {2, 3}) {
      setting.num_threads = num_threads;
      const Result result = run(setting, one_rank);
      REQUIRE(result.loss == expected.loss);
      REQUIRE(result.d_x == expected.d_x);
      REQUIRE(result.d_table == expected.d_table);
    }
  }
}

TEST_CASE("a NaN in x makes the head's loss NaN") {
  const Setting setting;
  NoTensorSum one_rank;
  Parameters parameters = vocabulary_share(setting.config(), DType::f32, one_rank.share());
  Stream stream(
      test_stream(1, Head::workspace_bytes(setting.config(), {.batch = {.B = 3, .T = 8}}, 1)));
  TokenBatch batch(3, 8, setting.vocab);
  GuardedTensor x = setting.x();
  std::vector<double> values = x.values();
  values[40] = NAN;
  x.set(values);
  const Head head(parameters, setting.config());
  LossSum losses;
  Pass pass = batch.pass(stream, one_rank);
  pass.losses = &losses;
  head.add_loss(pass, x);
  REQUIRE(std::isnan(losses.take(stream)));
}

}  // namespace slackline::testing
