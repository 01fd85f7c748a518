#include "compress/kernels/low_rank/orthonormalize.h"

#include <array>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kWorkspace = std::size_t{8} << 20U;

void run(GuardedTensor& matrix, Orthogonalization method) {
  const std::array<Tensor, 1> list = {matrix.view()};
  Stream stream(test_stream(1, orthonormalize_workspace_bytes(list, test_workers())));
  orthonormalize(stream, list, method);
  REQUIRE(matrix.sentinels_intact());
}

// The products of all pairs of columns, (r, r).
std::vector<double> gram(const std::vector<double>& values, std::size_t n, std::size_t r) {
  std::vector<double> products(r * r);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t a = 0; a < r; ++a) {
      for (std::size_t b = 0; b < r; ++b) {
        products[a * r + b] += values[i * r + a] * values[i * r + b];
      }
    }
  }
  return products;
}

std::vector<double> identity(std::size_t r) {
  std::vector<double> values(r * r);
  for (std::size_t k = 0; k < r; ++k) {
    values[k * r + k] = 1.0;
  }
  return values;
}

// The textbook's method in double, without scaling.
std::vector<double> gram_schmidt(std::vector<double> values, std::size_t n, std::size_t r) {
  for (std::size_t k = 0; k < r; ++k) {
    for (std::size_t earlier = 0; earlier < k; ++earlier) {
      double product = 0.0;
      for (std::size_t i = 0; i < n; ++i) {
        product += values[i * r + earlier] * values[i * r + k];
      }
      for (std::size_t i = 0; i < n; ++i) {
        values[i * r + k] -= product * values[i * r + earlier];
      }
    }
    double square = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      square += values[i * r + k] * values[i * r + k];
    }
    for (std::size_t i = 0; i < n; ++i) {
      values[i * r + k] /= std::sqrt(square);
    }
  }
  return values;
}

}  // namespace

TEST_CASE("both Gram-Schmidt methods give the basis of the textbook, whatever the scale") {
  for (const Orthogonalization method :
       {Orthogonalization::blocked, Orthogonalization::gram_schmidt}) {
    for (const auto& [n, r] : {std::pair{1, 1}, {5, 2}, {100, 16}, {333, 17}, {200, 64}}) {
      for (const double deviation : {1.0, 1e-20, 1e15}) {
        INFO(n << " x " << r << ", deviation " << deviation);
        GuardedTensor matrix =
            random_tensor(DType::f32, {n, r}, {.seed = 1, .deviation = deviation});
        const auto rows = static_cast<std::size_t>(n);
        const auto columns = static_cast<std::size_t>(r);
        const std::vector<double> expected = gram_schmidt(matrix.values(), rows, columns);
        run(matrix, method);
        // fp32 rounding, times the condition of random columns.
        REQUIRE(worst_mismatch(matrix.values(), expected, {.absolute = 2e-5}) == "");
        REQUIRE(worst_mismatch(gram(matrix.values(), rows, columns),
                               identity(columns),
                               {.absolute = 2e-6}) == "");
      }
    }
  }
}

TEST_CASE("blocked Gram-Schmidt is orthogonal however close to dependent the columns are") {
  constexpr std::size_t kRows = 500;
  constexpr std::size_t kColumns = 40;
  const std::vector<double> noise = random_values(kRows * kColumns, {.seed = 2});
  const std::vector<double> common = random_values(kRows, {.seed = 3});
  for (const double share : {1e-2, 1e-4, 3e-6}) {
    INFO("share " << share);
    std::vector<double> values;
    for (std::size_t i = 0; i < noise.size(); ++i) {
      values.push_back(common[i / kColumns] + share * noise[i]);
    }
    GuardedTensor matrix(DType::f32, {kRows, kColumns}, values);
    run(matrix, Orthogonalization::blocked);
    REQUIRE(worst_mismatch(gram(matrix.values(), kRows, kColumns),
                           identity(kColumns),
                           {.absolute = 2e-6}) == "");
  }
}

TEST_CASE("dependent columns become zero, the others stay a basis") {
  for (const Orthogonalization method :
       {Orthogonalization::blocked, Orthogonalization::gram_schmidt}) {
    constexpr std::size_t kRows = 64;
    constexpr std::size_t kColumns = 20;
    std::vector<double> values = random_values(kRows * kColumns, {.seed = 4});
    for (std::size_t i = 0; i < kRows; ++i) {
      values[i * kColumns + 3] = 0.0;
      values[i * kColumns + 7] = 2.0 * values[i * kColumns + 1];
      values[i * kColumns + 18] = values[i * kColumns + 0] - values[i * kColumns + 5];
    }
    GuardedTensor matrix(DType::f32, {kRows, kColumns}, values);
    run(matrix, method);
    std::vector<double> expected = identity(kColumns);
    for (const std::size_t lost : {3U, 7U, 18U}) {
      expected[lost * kColumns + lost] = 0.0;
    }
    REQUIRE(worst_mismatch(gram(matrix.values(), kRows, kColumns), expected, {.absolute = 1e-5}) ==
            "");
  }
}

TEST_CASE("zeros stay zeros and what is not finite becomes NaN") {
  GuardedTensor zeros(DType::f32, {8, 3});
  zeros.fill(0.0);
  run(zeros, Orthogonalization::blocked);
  REQUIRE(worst_mismatch(zeros.values(), std::vector<double>(24, 0.0), {}) == "");
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    GuardedTensor matrix = random_tensor(DType::f32, {8, 3}, {});
    std::vector<double> values = matrix.values();
    values[5] = bad;
    matrix.set(values);
    run(matrix, Orthogonalization::blocked);
    for (const double value : matrix.values()) {
      REQUIRE(std::isnan(value));
    }
  }
}

TEST_CASE("orthonormalizing has the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(kWorkspace, [](StreamView stream) {
    std::vector<std::byte> bytes;
    std::vector<GuardedTensor> matrices;
    std::vector<Tensor> views;
    for (const int n : {50, 70, 90, 110}) {
      matrices.push_back(random_tensor(DType::f32, {n, 20}, {}));
      views.push_back(matrices.back().view());
    }
    orthonormalize(stream, views, Orthogonalization::blocked);
    for (const GuardedTensor& matrix : matrices) {
      const std::vector<std::byte> more = matrix.bytes();
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    return bytes;
  });
}

TEST_CASE("orthonormalize refuses more columns than rows") {
  Stream stream(test_stream(1));
  GuardedTensor matrix(DType::f32, {2, 3});
  REQUIRE_THROWS_WITH(orthonormalize(stream, std::array{matrix.view()}, Orthogonalization::blocked),
                      Catch::Contains("more columns than rows"));
}

}  // namespace slackline::testing
