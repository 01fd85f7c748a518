#include "compress/kernels/low_rank/low_rank.h"

#include <array>

#include "tests/reference/matmul_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kWorkspace = std::size_t{48} << 20U;

struct Sizes {
  std::int64_t n, m, r;
};

// Odd rows and columns, one and several blocks of rows, thin and wide factors.
constexpr std::array<Sizes, 9> kSizes = {{{1, 1, 1},
                                          {2, 3, 1},
                                          {7, 5, 2},
                                          {33, 129, 3},
                                          {64, 64, 4},
                                          {65, 515, 5},
                                          {600, 70, 16},
                                          {257, 90, 17},
                                          {300, 200, 64}}};

// A product with all its tensors, random.
struct Case {
  explicit Case(const Sizes& size, bool with_added = true)
      : matrix(random_tensor(DType::f32, {size.n, size.m}, {.seed = 1})),
        added(random_tensor(DType::f32, {size.n, size.m}, {.seed = 2})),
        left(random_tensor(DType::f32, {size.n, size.r}, {.seed = 3})),
        right(random_tensor(DType::f32, {size.r, size.m}, {.seed = 4})),
        has_added(with_added) {}

  [[nodiscard]] LowRankProduct product() {
    return {.matrix = matrix,
            .added = has_added ? added.view() : Tensor(),
            .left = left,
            .right = right};
  }

  [[nodiscard]] bool sentinels_intact() const {
    return matrix.sentinels_intact() && added.sentinels_intact() && left.sentinels_intact() &&
           right.sentinels_intact();
  }

  GuardedTensor matrix;
  GuardedTensor added;
  GuardedTensor left;
  GuardedTensor right;
  bool has_added;
};

std::vector<double> sum(const std::vector<double>& a, const std::vector<double>& b, double share) {
  std::vector<double> result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    result.push_back(a[i] + share * b[i]);
  }
  return result;
}

// Sums of n products of numbers near 1: fp32 rounding of each, in the worst case in one direction.
Tolerance tolerance(std::int64_t n) {
  return {.relative = 1e-6, .absolute = 1e-6 * static_cast<double>(n + 10)};
}

std::size_t to_size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

TEST_CASE("low-rank factors match the oracle at any size, with and without an addend") {
  for (const Sizes& size : kSizes) {
    for (const bool with_added : {false, true}) {
      INFO(size.n << " x " << size.m << ", rank " << size.r << (with_added ? ", added" : ""));
      Case c(size, with_added);
      const std::vector<double> whole =
          with_added ? sum(c.matrix.values(), c.added.values(), 1.0) : c.matrix.values();
      const auto left = reference::Matmul{.M = to_size(size.n),
                                          .N = to_size(size.r),
                                          .K = to_size(size.m),
                                          .transpose_b = Transpose::yes}
                            .multiply(whole, c.right.values());
      Stream stream(test_stream(2, kWorkspace));
      const std::array<LowRankProduct, 1> products = {c.product()};
      low_rank_left(stream, products);
      REQUIRE(worst_mismatch(c.left.values(), left.c, tolerance(size.m)) == "");
      if (with_added) {
        REQUIRE(worst_mismatch(c.added.values(), whole, {.relative = 1e-7}) == "");
      }
      const auto right = reference::Matmul{.M = to_size(size.r),
                                           .N = to_size(size.m),
                                           .K = to_size(size.n),
                                           .transpose_a = Transpose::yes}
                             .multiply(c.left.values(), whole);
      low_rank_right(stream, products);
      const double scale = std::sqrt(static_cast<double>(size.m));  // of the left factor
      REQUIRE(worst_mismatch(c.right.values(),
                             right.c,
                             {.relative = 1e-6,
                              .absolute = 1e-6 * scale * static_cast<double>(size.n + 10)}) == "");
      REQUIRE(c.sentinels_intact());
    }
  }
}

TEST_CASE("low_rank_multiply writes, adds and takes off the product of the factors") {
  for (const Sizes& size : kSizes) {
    INFO(size.n << " x " << size.m << ", rank " << size.r);
    Case c(size);
    const auto product =
        reference::Matmul{.M = to_size(size.n), .N = to_size(size.m), .K = to_size(size.r)}
            .multiply(c.left.values(), c.right.values());
    Stream stream(test_stream(2, kWorkspace));
    std::array<LowRankProduct, 1> products = {c.product()};

    std::vector<double> added = c.added.values();
    low_rank_multiply(stream, products, LowRankOutput::write, 0.25F);
    REQUIRE(worst_mismatch(c.matrix.values(), product.c, tolerance(size.r)) == "");
    REQUIRE(worst_mismatch(c.added.values(), sum(added, product.c, -0.25), tolerance(size.r)) ==
            "");

    added = c.added.values();
    low_rank_multiply(stream, products, LowRankOutput::add, 1.0F);
    REQUIRE(worst_mismatch(c.matrix.values(), sum(product.c, product.c, 1.0), tolerance(size.r)) ==
            "");
    REQUIRE(worst_mismatch(c.added.values(), sum(added, product.c, -1.0), tolerance(size.r)) == "");

    const std::vector<std::byte> matrix = c.matrix.bytes();
    low_rank_multiply(stream, products, LowRankOutput::none, 1.0F);
    REQUIRE(c.matrix.bytes() == matrix);
    REQUIRE(c.sentinels_intact());
  }
}

TEST_CASE("a low-rank product's bits depend on no other product of the call") {
  Stream stream(test_stream(2, kWorkspace));
  Case alone({300, 70, 4});
  low_rank_left(stream, std::array{alone.product()});
  low_rank_right(stream, std::array{alone.product()});
  Case first({65, 515, 5});
  Case second({300, 70, 4});
  Case third({300, 200, 64});
  const std::array<LowRankProduct, 3> products = {
      first.product(), second.product(), third.product()};
  low_rank_left(stream, products);
  low_rank_right(stream, products);
  REQUIRE(second.left.bytes() == alone.left.bytes());
  REQUIRE(second.right.bytes() == alone.right.bytes());
}

TEST_CASE("low-rank products have the same bits for any number of threads") {
  for (const Sizes& size : {Sizes{600, 70, 16}, Sizes{300, 200, 64}}) {
    require_same_bits_for_any_thread_count(kWorkspace, [&](StreamView stream) {
      Case c(size);
      const std::array<LowRankProduct, 1> products = {c.product()};
      low_rank_left(stream, products);
      low_rank_right(stream, products);
      low_rank_multiply(stream, products, LowRankOutput::write, 1.0F);
      std::vector<std::byte> bytes = c.matrix.bytes();
      const std::vector<std::byte> added = c.added.bytes();
      bytes.insert(bytes.end(), added.begin(), added.end());
      return bytes;
    });
  }
}

TEST_CASE("low-rank products need no more workspace than they say") {
  for (const Sizes& size : kSizes) {
    Case c(size);
    const std::array<LowRankProduct, 1> products = {c.product()};
    Stream stream(test_stream(2, low_rank_workspace_bytes(products, test_workers(2))));
    low_rank_left(stream, products);
    low_rank_right(stream, products);
    low_rank_multiply(stream, products, LowRankOutput::write, 1.0F);
    REQUIRE(c.sentinels_intact());
  }
}

TEST_CASE("low-rank products refuse factors that do not fit") {
  Stream stream(test_stream(1));
  Case c({4, 3, 2});
  LowRankProduct product = c.product();
  product.right = product.right.reshaped({3, 2});
  REQUIRE_THROWS_WITH(low_rank_left(stream, std::array{product}),
                      Catch::Contains("low_rank right is f32 (3, 2), due is f32 (2, 3)"));
}

}  // namespace slackline::testing
