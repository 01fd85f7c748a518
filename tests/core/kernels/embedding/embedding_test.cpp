#include "core/kernels/embedding/embedding.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/reference/embedding_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr std::int64_t kVocabulary = 11;
constexpr std::int64_t kPositions = 40;

struct Case {
  Case(DType dtype, std::int64_t B, std::int64_t T, std::int64_t C)
      : oracle{{}, static_cast<std::size_t>(T), static_cast<std::size_t>(C)},
        tokens(DType::i32, {B, T}),
        token_table(random_tensor(dtype, {kVocabulary, C}, {.seed = 1})),
        position_table(random_tensor(dtype, {kPositions, C}, {.seed = 2})),
        y(dtype, {B, T, C}),
        dy(random_tensor(dtype, {B, T, C}, {.seed = 3})),
        d_token_table(random_tensor(DType::f32, {kVocabulary, C}, {.seed = 4})),
        d_position_table(random_tensor(DType::f32, {kPositions, C}, {.seed = 5})) {
    std::vector<double> ids;
    for (std::int64_t i = 0; i < B * T; ++i) {
      oracle.tokens.push_back(static_cast<std::size_t>(i * i % kVocabulary));  // repeats
      ids.push_back(static_cast<double>(oracle.tokens.back()));
    }
    tokens.set(ids);
  }

  void forward(StreamView stream, std::int64_t first_position) {
    embedding_forward(stream,
                      {.tokens = tokens,
                       .token_table = token_table,
                       .position_table = position_table,
                       .y = y,
                       .first_position = first_position});
  }

  void backward(StreamView stream) {
    embedding_backward(stream,
                       {.tokens = tokens,
                        .dy = dy,
                        .d_token_table = d_token_table,
                        .d_position_table = d_position_table});
  }

  reference::Embedding oracle;
  GuardedTensor tokens, token_table, position_table, y, dy, d_token_table, d_position_table;
};

struct Size {
  std::int64_t B;
  std::int64_t T;
  std::int64_t C;
};

std::size_t workspace_of(const Size& size, std::int64_t vocabulary = kVocabulary) {
  return embedding_workspace_bytes(size.B * size.T, vocabulary, test_workers());
}

}  // namespace

TEST_CASE("embedding looks up token and position, and scatters gradients back") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size size : {Size{0, 4, 3}, {1, 1, 1}, {3, 7, 17}, {2, 33, 130}}) {
      INFO(name_of(dtype) << " " << size.B << " x " << size.T << " x " << size.C);
      Stream stream(test_stream(2, workspace_of(size)));
      Case test(dtype, size.B, size.T, size.C);
      std::vector<double> d_tokens = test.d_token_table.values();
      std::vector<double> d_positions = test.d_position_table.values();
      test.oracle.backward(test.dy.values(), d_tokens, d_positions);
      test.forward(stream, 5);
      test.backward(stream);

      const auto expected =
          test.oracle.forward(test.token_table.values(), test.position_table.values(), 5);
      // One sum, one rounding to the type: half a unit.
      REQUIRE(worst_mismatch(test.y.values(),
                             expected,
                             {.relative = dtype == DType::f32 ? 0x1p-24 : 0x1p-8}) == "");
      // f32 sums of at most 66 / 11 * 2 numbers of order 1, whatever the type.
      REQUIRE(worst_mismatch(test.d_token_table.values(), d_tokens, {1e-6, 5e-6}) == "");
      REQUIRE(worst_mismatch(test.d_position_table.values(), d_positions, {1e-6, 5e-6}) == "");
      REQUIRE(test.y.sentinels_intact());
      REQUIRE(test.d_token_table.sentinels_intact());
      REQUIRE(test.d_position_table.sentinels_intact());
      REQUIRE(stream.workspace().high_water() == workspace_of(size));
    }
  }
}

TEST_CASE("a token's rows are added in ascending order, however often it occurs") {
  constexpr Size kSize{4, 300, 6};
  constexpr std::int64_t kN = kSize.B * kSize.T;
  constexpr std::int64_t kRows = 700;
  Stream stream(test_stream(2, workspace_of(kSize, kRows)));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    GuardedTensor dy = random_tensor(dtype, {kSize.B, kSize.T, kSize.C}, {.seed = 1});
    GuardedTensor d_tokens = random_tensor(DType::f32, {kRows, kSize.C}, {.seed = 2});
    GuardedTensor d_positions = random_tensor(DType::f32, {kSize.T, kSize.C}, {.seed = 3});
    GuardedTensor tokens(DType::i32, {kSize.B, kSize.T});
    std::vector<double> ids;
    std::vector<double> token_sums = d_tokens.values();
    std::vector<double> position_sums = d_positions.values();
    const std::vector<double> rows = dy.values();
    for (std::int64_t i = 0; i < kN; ++i) {
      const std::int64_t token = i % 3 == 0 ? 5 : i * i % kRows;
      ids.push_back(static_cast<double>(token));
      for (std::int64_t c = 0; c < kSize.C; ++c) {
        const auto add = [&](std::vector<double>& sums, std::int64_t row) {
          double& sum = sums[static_cast<std::size_t>(row * kSize.C + c)];
          sum = static_cast<float>(sum + rows[static_cast<std::size_t>(i * kSize.C + c)]);
        };
        add(token_sums, token);
        add(position_sums, i % kSize.T);
      }
    }
    tokens.set(ids);
    embedding_backward(
        stream,
        {.tokens = tokens, .dy = dy, .d_token_table = d_tokens, .d_position_table = d_positions});
    REQUIRE(d_tokens.values() == token_sums);
    REQUIRE(d_positions.values() == position_sums);
    REQUIRE(d_tokens.sentinels_intact());
  }
}

TEST_CASE("the embedding oracle's gradients agree with finite differences") {
  const Case test(DType::f32, 2, 3, 2);
  const std::vector<double> tokens = test.token_table.values();
  const std::vector<double> positions = test.position_table.values();
  const std::vector<double> dy = test.dy.values();
  std::vector<double> d_tokens(tokens.size());
  std::vector<double> d_positions(positions.size());
  test.oracle.backward(dy, d_tokens, d_positions);
  const auto loss = [&](const std::vector<double>& t, const std::vector<double>& p) {
    const std::vector<double> y = test.oracle.forward(t, p);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  const auto of_tokens = [&](const std::vector<double>& at) { return loss(at, positions); };
  const auto of_positions = [&](const std::vector<double>& at) { return loss(tokens, at); };
  REQUIRE(worst_mismatch(d_tokens, finite_differences(of_tokens, tokens), {.absolute = 1e-8}) ==
          "");
  REQUIRE(worst_mismatch(
              d_positions, finite_differences(of_positions, positions), {.absolute = 1e-8}) == "");
}

TEST_CASE("embedding gradients have the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(workspace_of({4, 30, 200}), [](StreamView stream) {
    Case test(DType::f32, 4, 30, 200);
    test.backward(stream);
    return test.d_token_table.bytes();
  });
}

TEST_CASE("tables of a part of the vocabulary add up to the whole table's lookup") {
  constexpr std::int64_t kT = 7;
  constexpr std::int64_t kN = 3 * kT;
  constexpr std::int64_t kC = 17;
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case test(dtype, 3, kT, kC);
    test.forward(stream, 0);
    std::vector<double> sum(test.y.values().size());
    for (int rank = 0; rank < 3; ++rank) {
      const std::int64_t first = kVocabulary * rank / 3;
      GuardedTensor part(dtype, {3, kT, kC});
      embedding_forward(
          stream,
          {.tokens = test.tokens,
           .token_table = test.token_table.view().rows(first, kVocabulary * (rank + 1) / 3),
           .y = part,
           .first_token = first});
      const std::vector<double> values = part.values();
      std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
      REQUIRE(part.sentinels_intact());
    }
    const GuardedTensor lookups(dtype, {kN, kC}, sum);
    for (const std::int64_t num_rows : {1, 3, 7, 21}) {  // begin inside a sample
      GuardedTensor y = lookups;
      for (std::int64_t row = 0; row < kN; row += num_rows) {
        const Tensor rows = y.view().rows(row, row + num_rows);
        add_positions(stream,
                      {.position_table = test.position_table,
                       .x = rows,
                       .y = rows,
                       .first_row = row,
                       .T = kT});
      }
      REQUIRE(y.bytes() == test.y.bytes());
    }
  }
}

TEST_CASE("a table of a part of the vocabulary gets the whole table's gradient of its rows") {
  Stream stream(test_stream(2, workspace_of({3, 7, 17})));
  Case whole(DType::bf16, 3, 7, 17);
  whole.backward(stream);
  const auto expected = whole.d_token_table.bytes();
  std::vector<std::byte> rows;
  for (int rank = 0; rank < 3; ++rank) {
    const std::int64_t first = kVocabulary * rank / 3;
    const std::int64_t last = kVocabulary * (rank + 1) / 3;
    Case test(DType::bf16, 3, 7, 17);
    const GuardedTensor before = test.d_token_table;
    embedding_backward(stream,
                       {.tokens = test.tokens,
                        .dy = test.dy,
                        .d_token_table = test.d_token_table.view().rows(first, last),
                        .d_position_table = test.d_position_table,
                        .first_token = first});
    REQUIRE(test.d_position_table.bytes() == whole.d_position_table.bytes());
    const auto after = test.d_token_table.bytes();
    const auto begin = static_cast<std::ptrdiff_t>(first * 17 * 4);
    const auto end = static_cast<std::ptrdiff_t>(last * 17 * 4);
    rows.insert(rows.end(), after.begin() + begin, after.begin() + end);
    // Nothing is written outside the part.
    const auto untouched = before.bytes();
    REQUIRE(std::equal(after.begin(), after.begin() + begin, untouched.begin()));
    REQUIRE(std::equal(after.begin() + end, after.end(), untouched.begin() + end));
  }
  REQUIRE(rows == expected);
}

TEST_CASE("either table's gradient may be left out, and the other has the same bits") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Stream stream(test_stream(2, workspace_of({3, 7, 17})));
    Case both(dtype, 3, 7, 17);
    both.backward(stream);
    Case tokens(dtype, 3, 7, 17);
    embedding_backward(
        stream, {.tokens = tokens.tokens, .dy = tokens.dy, .d_token_table = tokens.d_token_table});
    REQUIRE(tokens.d_token_table.bytes() == both.d_token_table.bytes());
    Case positions(dtype, 3, 7, 17);
    embedding_backward(stream,
                       {.tokens = positions.tokens,
                        .dy = positions.dy,
                        .d_position_table = positions.d_position_table});
    REQUIRE(positions.d_position_table.bytes() == both.d_position_table.bytes());
  }
}

TEST_CASE("embedding refuses positions beyond its table") {
  Stream stream(test_stream(1));
  Case test(DType::f32, 1, 8, 4);
  REQUIRE_NOTHROW(test.forward(stream, kPositions - 8));
  REQUIRE_THROWS_WITH(test.forward(stream, kPositions - 7),
                      Catch::Contains("positions from 33, 8 of them, in a table of 40"));
  Case longer(DType::f32, 1, kPositions + 1, 4);
  REQUIRE_THROWS_WITH(longer.backward(stream), Catch::Contains("41 positions in a table of 40"));
}

}  // namespace slackline::testing
