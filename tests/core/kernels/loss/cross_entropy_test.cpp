#include "core/kernels/loss/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "tests/reference/cross_entropy_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr float kScale = 0.25F;

// Logits (N, V) of deviation 2, their columns spread over ranks as a vocabulary is. The identity
// stands for the table, so that the oracle's gradient of x is the gradient of the logits.
struct Case {
  Case(DType dtype_, std::int64_t N_, std::int64_t V_, int num_ranks)
      : dtype(dtype_),
        N(N_),
        V(V_),
        logits(random_values(static_cast<std::size_t>(N * V), {.seed = 1, .deviation = 2.0})),
        targets(DType::i32, {N}),
        all(DType::f32, {num_ranks, N, kSoftmaxStatistics}),
        oracle{static_cast<std::size_t>(V), static_cast<std::size_t>(V), {}} {
    std::vector<double> ids;
    for (std::int64_t n = 0; n < N; ++n) {
      oracle.targets.push_back(static_cast<std::size_t>(n * 7 % V));
      ids.push_back(static_cast<double>(oracle.targets.back()));
    }
    targets.set(ids);
    for (int r = 0; r < num_ranks; ++r) {
      first.push_back(V * r / num_ranks);
      const std::int64_t columns = V * (r + 1) / num_ranks - first.back();
      shards.emplace_back(DType::f32, Shape{N, columns});
      losses.emplace_back(DType::f32, Shape{N});
      d_logits.emplace_back(dtype, Shape{N, columns});
    }
    // As they are stored: rounded to float.
    logits = GuardedTensor(DType::f32, {N, V}, logits).values();
  }

  void run(StreamView stream) {
    const auto num_ranks = static_cast<int>(shards.size());
    for (int r = 0; r < num_ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      shards[i].set(columns_of(i));
      softmax_statistics(stream,
                         {.logits = shards[i],
                          .targets = targets,
                          .statistics = all.view().rows(r, r + 1).reshaped({N, kSoftmaxStatistics}),
                          .first_token = first[i]});
    }
    for (int r = 0; r < num_ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      softmax_loss(stream,
                   {.exponentials = shards[i],
                    .targets = targets,
                    .statistics = all,
                    .rank = r,
                    .first_token = first[i],
                    .losses = losses[i],
                    .d_logits = in_place() ? shards[i] : d_logits[i],
                    .gradient_scale = kScale});
    }
  }

  // f32 gradients take the place of the exponentials, as they do in the head.
  [[nodiscard]] bool in_place() const { return dtype == DType::f32; }

  [[nodiscard]] std::vector<double> columns_of(std::size_t r) const {
    const auto width = static_cast<std::size_t>(shards[r].values().size()) / oracle.targets.size();
    std::vector<double> part;
    for (std::size_t n = 0; n < oracle.targets.size(); ++n) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(
                                            n * oracle.V + static_cast<std::size_t>(first[r]));
      part.insert(part.end(), row, row + static_cast<std::ptrdiff_t>(width));
    }
    return part;
  }

  // The shards' gradients, put together again.
  [[nodiscard]] std::vector<double> gradients() const {
    std::vector<double> whole(logits.size());
    for (std::size_t r = 0; r < shards.size(); ++r) {
      const std::vector<double> part = in_place() ? shards[r].values() : d_logits[r].values();
      const std::size_t width = part.size() / oracle.targets.size();
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::size_t column = static_cast<std::size_t>(first[r]) + i % width;
        whole[i / width * oracle.V + column] = part[i];
      }
    }
    return whole;
  }

  [[nodiscard]] std::vector<double> identity() const {
    std::vector<double> table(oracle.V * oracle.V);
    for (std::size_t v = 0; v < oracle.V; ++v) {
      table[v * oracle.V + v] = 1.0;
    }
    return table;
  }

  DType dtype;
  std::int64_t N, V;
  std::vector<double> logits;
  GuardedTensor targets, all;
  reference::CrossEntropy oracle;
  std::vector<std::int64_t> first;
  std::vector<GuardedTensor> shards, losses, d_logits;
};

// Losses and gradients of a case's rows, where a table of V x V is too large for the oracle.
struct Expected {
  std::vector<double> losses;
  std::vector<double> gradients;
};

Expected in_double(const Case& test) {
  Expected expected;
  const auto width = static_cast<std::size_t>(test.V);
  for (std::size_t n = 0; n < static_cast<std::size_t>(test.N); ++n) {
    const std::span<const double> row(&test.logits[n * width], width);
    double sum = 0.0;
    for (const double logit : row) {
      sum += std::exp(logit);
    }
    const std::size_t target = test.oracle.targets[n];
    expected.losses.push_back(std::log(sum) - row[target]);
    for (std::size_t v = 0; v < width; ++v) {
      expected.gradients.push_back(kScale * (std::exp(row[v]) / sum - (v == target ? 1.0 : 0.0)));
    }
  }
  return expected;
}

// A case whose rows of logits and gradients lie `row` elements apart.
class RowsApart {
 public:
  RowsApart(Case& test, std::int64_t row)
      : test_(test),
        row_(row),
        logits_(DType::f32, {test.N, row}),
        gradients_(test.dtype, {test.N, row}) {
    reset();
  }

  void reset() {
    std::vector<double> spread(static_cast<std::size_t>(test_.N * row_), kKept);
    for (std::size_t i = 0; i < test_.logits.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      spread[static_cast<std::size_t>(at / test_.V * row_ + at % test_.V)] = test_.logits[i];
    }
    logits_.set(spread);
    gradients_.set(spread);
    test_.losses[0].fill(0.0);
  }

  [[nodiscard]] Tensor logits() { return rows_of(logits_); }

  // In f32 they take the place of the logits.
  [[nodiscard]] Tensor gradients() { return rows_of(test_.in_place() ? logits_ : gradients_); }

  void require(const Expected& expected) {
    const std::vector<double> made = require_kept(test_.in_place() ? logits_ : gradients_);
    require_kept(logits_);
    const double rounding = test_.dtype == DType::f32 ? 2e-6 : 0x1p-8;
    REQUIRE(worst_mismatch(made, expected.gradients, {.relative = rounding, .absolute = 1e-7}) ==
            "");
    REQUIRE(worst_mismatch(test_.losses[0].values(), expected.losses, {2e-6, 4e-6}) == "");
    REQUIRE(logits_.sentinels_intact());
    REQUIRE(gradients_.sentinels_intact());
  }

 private:
  static constexpr double kKept = 0.25;  // between rows

  [[nodiscard]] Tensor rows_of(GuardedTensor& all) const {
    return {all.view().raw(), all.view().dtype(), {test_.N, test_.V}, all.view().device()};
  }

  // Returns the elements of the rows.
  std::vector<double> require_kept(const GuardedTensor& all) const {
    std::vector<double> elements;
    std::size_t num_lost = 0;
    const std::vector<double> values = all.values();
    for (std::int64_t i = 0; i < test_.N * row_; ++i) {
      const double value = values[static_cast<std::size_t>(i)];
      if (i % row_ < test_.V) {
        elements.push_back(value);
      } else {
        num_lost += value == kKept ? 0 : 1;
      }
    }
    REQUIRE(num_lost == 0);
    return elements;
  }

  Case& test_;
  std::int64_t row_;
  GuardedTensor logits_, gradients_;
};

}  // namespace

TEST_CASE("losses and logit gradients match the oracle, on however many ranks the columns are") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [N, V] : {std::pair{1, 4}, {9, 33}, {50, 101}, {3, 257}}) {
      for (const int num_ranks : {1, 2, 3, 4}) {
        INFO(name_of(dtype) << " " << N << " x " << V << " on " << num_ranks);
        Case test(dtype, N, V, num_ranks);
        test.run(stream);
        const auto expected = test.oracle.gradients(test.logits, test.identity(), kScale);
        // bf16: the gradient of a logit rounds to 8 bits.
        const Tolerance close = dtype == DType::f32
                                    ? Tolerance{.relative = 2e-6, .absolute = 1e-7}
                                    : Tolerance{.relative = 0x1p-8, .absolute = 1e-7};
        REQUIRE(worst_mismatch(test.gradients(), expected.dx, close) == "");
        const auto losses = test.oracle.losses(test.logits, test.identity());
        REQUIRE(worst_mismatch(test.losses[0].values(), losses, {2e-6, 4e-6}) == "");
        for (std::size_t r = 0; r < test.shards.size(); ++r) {
          REQUIRE(test.losses[r].bytes() == test.losses[0].bytes());
          REQUIRE(test.losses[r].sentinels_intact());
          REQUIRE(test.shards[r].sentinels_intact());
          REQUIRE(test.d_logits[r].sentinels_intact());
        }
      }
    }
  }
}

TEST_CASE("on one rank both ops in one give the bits of the two") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case two(dtype, 50, 101, 1);
    two.run(stream);
    Case one(dtype, 50, 101, 1);
    one.shards[0].set(one.logits);
    softmax_cross_entropy(stream,
                          {.logits = one.shards[0],
                           .targets = one.targets,
                           .losses = one.losses[0],
                           .d_logits = one.in_place() ? one.shards[0] : one.d_logits[0],
                           .gradient_scale = kScale});
    REQUIRE(one.losses[0].bytes() == two.losses[0].bytes());
    REQUIRE(one.gradients() == two.gradients());
    REQUIRE(one.shards[0].sentinels_intact());
    REQUIRE(one.d_logits[0].sentinels_intact());
  }
}

TEST_CASE("long rows match a softmax in double, and both ops in one give the bits of the two") {
  Stream stream(test_stream(2));
  // From a batch for each thread of a CUDA block to more than the block can hold.
  for (const std::int64_t V : {5003, 20011, 50257, 70003}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      INFO(name_of(dtype) << " " << V);
      Case two(dtype, 2, V, 1);
      two.run(stream);
      Case one(dtype, 2, V, 1);
      one.shards[0].set(one.logits);
      softmax_cross_entropy(stream,
                            {.logits = one.shards[0],
                             .targets = one.targets,
                             .losses = one.losses[0],
                             .d_logits = one.in_place() ? one.shards[0] : one.d_logits[0],
                             .gradient_scale = kScale});
      const std::vector<double> gradients = one.gradients();
      REQUIRE(one.losses[0].bytes() == two.losses[0].bytes());
      REQUIRE(gradients == two.gradients());
      REQUIRE(one.shards[0].sentinels_intact());
      REQUIRE(one.d_logits[0].sentinels_intact());

      const Expected expected = in_double(one);
      REQUIRE(worst_mismatch(one.losses[0].values(), expected.losses, {.relative = 1e-6}) == "");
      const double rounding = dtype == DType::f32 ? 2e-6 : 0x1p-8;
      REQUIRE(worst_mismatch(
                  gradients, expected.gradients, {.relative = rounding, .absolute = 1e-11}) == "");
    }
  }
}

TEST_CASE("logits and their gradients may begin anywhere") {
  Stream stream(test_stream(1));
  constexpr std::int64_t kV = 133;
  Case test(DType::bf16, 3, kV, 1);
  const auto expected = test.oracle.gradients(test.logits, test.identity(), kScale).dx;
  const auto losses = test.oracle.losses(test.logits, test.identity());
  for (const std::int64_t first : {0, 1, 2, 3}) {
    for (const std::int64_t first_gradient : {0, 1, 5}) {
      INFO(first << " " << first_gradient);
      GuardedTensor logits(DType::f32, {3 * kV + first});
      std::vector<double> values(static_cast<std::size_t>(first));
      values.insert(values.end(), test.logits.begin(), test.logits.end());
      logits.set(values);
      GuardedTensor gradients(DType::bf16, {3 * kV + first_gradient});
      softmax_cross_entropy(
          stream,
          {.logits = logits.view().rows(first, first + 3 * kV).reshaped({3, kV}),
           .targets = test.targets,
           .losses = test.losses[0],
           .d_logits =
               gradients.view().rows(first_gradient, first_gradient + 3 * kV).reshaped({3, kV}),
           .gradient_scale = kScale});
      std::vector<double> got = gradients.values();
      got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(first_gradient));
      REQUIRE(worst_mismatch(got, expected, {.relative = 0x1p-8, .absolute = 1e-7}) == "");
      REQUIRE(worst_mismatch(test.losses[0].values(), losses, {2e-6, 4e-6}) == "");
      REQUIRE(logits.sentinels_intact());
      REQUIRE(gradients.sentinels_intact());
    }
  }
}

TEST_CASE("rows of logits may lie apart, and what is between them stays") {
  Stream stream(test_stream(2));
  using Width = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [V, row] : {Width{133, 192}, Width{128, 133}, Width{50257, 50304}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      INFO(name_of(dtype) << " " << V << " in rows of " << row);
      Case test(dtype, 3, V, 1);
      const Expected expected = in_double(test);
      RowsApart rows(test, row);
      softmax_cross_entropy(stream,
                            {.logits = rows.logits(),
                             .targets = test.targets,
                             .losses = test.losses[0],
                             .d_logits = rows.gradients(),
                             .gradient_scale = kScale,
                             .row = row});
      rows.require(expected);

      rows.reset();
      softmax_statistics(stream,
                         {.logits = rows.logits(),
                          .targets = test.targets,
                          .statistics = test.all.view().reshaped({3, kSoftmaxStatistics}),
                          .row = row});
      softmax_loss(stream,
                   {.exponentials = rows.logits(),
                    .targets = test.targets,
                    .statistics = test.all,
                    .losses = test.losses[0],
                    .d_logits = rows.gradients(),
                    .gradient_scale = kScale,
                    .row = row});
      rows.require(expected);
    }
  }
}

TEST_CASE("the oracle's gradients are those of finite differences") {
  const reference::CrossEntropy oracle{5, 7, {0, 3, 6}};
  const std::vector<double> x = random_values(15, {.seed = 1});
  const std::vector<double> table = random_values(35, {.seed = 2});
  const auto total = [&](const std::vector<double>& x_, const std::vector<double>& table_) {
    const auto losses = oracle.losses(x_, table_);
    return kScale * std::accumulate(losses.begin(), losses.end(), 0.0);
  };
  const auto expected = oracle.gradients(x, table, kScale);
  const auto dx = finite_differences([&](const auto& at) { return total(at, table); }, x);
  const auto d_table = finite_differences([&](const auto& at) { return total(x, at); }, table);
  REQUIRE(worst_mismatch(dx, expected.dx, {1e-7, 1e-8}) == "");
  REQUIRE(worst_mismatch(d_table, expected.d_table, {1e-7, 1e-8}) == "");
}

TEST_CASE("chunks of tokens are even and bounded") {
  REQUIRE(cross_entropy_chunk_tokens(256, 50257, Device::cpu) == 256);
  REQUIRE(cross_entropy_chunk_tokens(1024, 50257, Device::cpu) == 256);
  REQUIRE(cross_entropy_chunk_tokens(1, 257, Device::cpu) == 8);
  REQUIRE(cross_entropy_chunk_tokens(65536, 50257, Device::cuda) == 5048);  // 13 of them
  for (const std::int64_t N : {1, 7, 333, 334, 4096}) {
    REQUIRE(cross_entropy_chunk_tokens(N, 50257, Device::cpu) * 50257 * 4 <= (64 << 20));
  }
}

TEST_CASE("rows of logits begin at whole packs on a device") {
  REQUIRE(logits_row(50257, Device::cpu) == 50257);
  REQUIRE(logits_row(50257, Device::cuda) == 50304);
  REQUIRE(logits_row(50304, Device::cuda) == 50304);
}

TEST_CASE("logits far from zero neither overflow nor vanish, wherever the largest is") {
  Stream stream(test_stream(1));
  for (const int num_ranks : {1, 2, 4}) {
    INFO(num_ranks << " ranks");
    Case test(DType::f32, 2, 4, num_ranks);
    test.logits = {300.0, 200.0, 100.0, -300.0, -300.0, -200.0, 250.0, 249.0};
    test.run(stream);
    const auto losses = test.oracle.losses(test.logits, test.identity());
    REQUIRE(worst_mismatch(test.losses[0].values(), losses, {1e-6, 1e-6}) == "");
    const auto expected = test.oracle.gradients(test.logits, test.identity(), kScale);
    REQUIRE(worst_mismatch(test.gradients(), expected.dx, {1e-5, 1e-7}) == "");
  }
}

TEST_CASE("a row of NaN on one rank makes the loss NaN on all, and no other row's") {
  Stream stream(test_stream(1));
  for (const std::size_t rank : {0U, 1U, 2U}) {
    Case test(DType::f32, 2, 39, 3);
    std::fill_n(test.logits.begin() + static_cast<std::ptrdiff_t>(13 * rank), 13, NAN);
    test.run(stream);
    for (const GuardedTensor& losses : test.losses) {
      REQUIRE(std::isnan(losses.values()[0]));
      REQUIRE(!std::isnan(losses.values()[1]));
    }
  }
}

TEST_CASE("one logit that is NaN makes the row's loss NaN, wherever it stands") {
  Stream stream(test_stream(1));
  for (const int ranks : {1, 3}) {
    for (std::size_t column = 0; column < 39; ++column) {
      INFO(ranks << " ranks, column " << column);
      Case test(DType::f32, 2, 39, ranks);
      test.logits[column] = NAN;
      test.run(stream);
      for (const GuardedTensor& losses : test.losses) {
        REQUIRE(std::isnan(losses.values()[0]));
        REQUIRE(!std::isnan(losses.values()[1]));
      }
    }
  }
}

TEST_CASE("a rank without columns adds nothing") {
  Stream stream(test_stream(1));
  Case test(DType::f32, 3, 2, 4);  // ranks 0 and 2 have none
  test.run(stream);
  const auto losses = test.oracle.losses(test.logits, test.identity());
  REQUIRE(worst_mismatch(test.losses[0].values(), losses, {2e-6, 4e-6}) == "");
  REQUIRE(test.losses[0].bytes() == test.losses[3].bytes());
}

TEST_CASE("the softmax gives the same bits on any number of threads") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    require_same_bits_for_any_thread_count(0, [&](StreamView stream) {
      Case test(dtype, 70, 1000, 2);
      test.run(stream);
      std::vector<std::byte> bytes = test.losses[1].bytes();
      const auto gradient = (test.in_place() ? test.shards[1] : test.d_logits[1]).bytes();
      bytes.insert(bytes.end(), gradient.begin(), gradient.end());
      return bytes;
    });
  }
}

}  // namespace slackline::testing
