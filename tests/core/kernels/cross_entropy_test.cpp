#include "core/kernels/cross_entropy.h"

#include <numeric>

#include "tests/reference/cross_entropy_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

struct Size {
  std::int64_t N;
  std::int64_t C;
  std::int64_t V;
};

constexpr float kScale = 0.25F;

constexpr Size kSizes[] = {{1, 1, 1}, {1, 3, 2}, {9, 17, 33}, {50, 64, 257}, {70, 32, 1000}};

struct Case {
  // Logits of deviation about 2, so that probabilities differ.
  Case(DType dtype, Size size_)
      : size(size_),
        x(random_tensor(dtype, {size.N, size.C}, {.seed = 1})),
        table(random_tensor(
            dtype, {size.V, size.C}, {.seed = 2, .deviation = 2.0 / std::sqrt(double(size.C))})),
        targets(DType::i32, {size.N}),
        losses(DType::f32, {size.N}),
        d_x(dtype, {size.N, size.C}),
        d_table(random_tensor(DType::f32, {size.V, size.C}, {.seed = 3})),
        oracle{static_cast<std::size_t>(size.C), static_cast<std::size_t>(size.V), {}} {
    std::vector<double> values;
    for (std::int64_t n = 0; n < size.N; ++n) {
      oracle.targets.push_back(static_cast<std::size_t>(n * 7 % size.V));
      values.push_back(static_cast<double>(oracle.targets.back()));
    }
    targets.set(values);
  }

  [[nodiscard]] CrossEntropyArgs args() {
    return {.x = x,
            .table = table,
            .targets = targets,
            .losses = losses,
            .d_x = d_x,
            .d_table = d_table,
            .gradient_scale = kScale};
  }

  [[nodiscard]] CrossEntropySize op_size() {
    return {.N = size.N, .C = size.C, .V = size.V, .dtype = x.view().dtype()};
  }

  void run(int num_threads, Accumulate accumulate) {
    const std::size_t bytes = cross_entropy_workspace_bytes(op_size(), num_threads);
    Stream stream(test_stream(num_threads, bytes));
    CrossEntropyArgs call = args();
    call.accumulate_table = accumulate;
    cross_entropy(stream, call);
    REQUIRE(stream.workspace().high_water() == bytes);
  }

  [[nodiscard]] bool sentinels_intact() const {
    return losses.sentinels_intact() && d_x.sentinels_intact() && d_table.sentinels_intact();
  }

  Size size;
  GuardedTensor x, table, targets, losses, d_x, d_table;
  reference::CrossEntropy oracle;
};

// f32: sums of at most 1000 terms of order 1. bf16: the gradient of a logit rounds to 8 bits, at
// most 2^-9 of kScale, and d_x, a sum of them, once more.
Tolerance tolerance(DType dtype) {
  return dtype == DType::f32 ? Tolerance{.relative = 2e-6, .absolute = 2e-6}
                             : Tolerance{.relative = 0x1p-7, .absolute = 3e-3};
}

}  // namespace

TEST_CASE("cross entropy and its gradients match the oracle") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size size : kSizes) {
      INFO(name_of(dtype) << " " << size.N << " x " << size.C << " x " << size.V);
      Case test(dtype, size);
      std::vector<double> held = test.d_table.values();
      const auto expected = test.oracle.gradients(test.x.values(), test.table.values(), kScale);
      std::transform(
          held.begin(), held.end(), expected.d_table.begin(), held.begin(), std::plus<>());
      test.run(2, Accumulate::yes);
      const auto losses = test.oracle.losses(test.x.values(), test.table.values());
      REQUIRE(worst_mismatch(test.losses.values(), losses, {2e-6, 4e-6}) == "");
      REQUIRE(worst_mismatch(test.d_x.values(), expected.dx, tolerance(dtype)) == "");
      REQUIRE(worst_mismatch(test.d_table.values(), held, tolerance(dtype)) == "");
      REQUIRE(test.sentinels_intact());
    }
  }
}

TEST_CASE("the table's gradient is written where it is not added to") {
  Case test(DType::f32, {9, 17, 33});
  test.d_table.fill(NAN);
  test.run(1, Accumulate::no);
  const auto expected = test.oracle.gradients(test.x.values(), test.table.values(), kScale);
  REQUIRE(worst_mismatch(test.d_table.values(), expected.d_table, tolerance(DType::f32)) == "");
}

TEST_CASE("the oracle's gradients are those of finite differences") {
  Case test(DType::f32, {3, 5, 7});
  const std::vector<double> x = test.x.values();
  const std::vector<double> table = test.table.values();
  const auto total = [&](const std::vector<double>& x_, const std::vector<double>& table_) {
    const auto losses = test.oracle.losses(x_, table_);
    return kScale * std::accumulate(losses.begin(), losses.end(), 0.0);
  };
  const auto expected = test.oracle.gradients(x, table, kScale);
  const auto dx = finite_differences([&](const auto& at) { return total(at, table); }, x);
  const auto d_table = finite_differences([&](const auto& at) { return total(x, at); }, table);
  REQUIRE(worst_mismatch(dx, expected.dx, {1e-7, 1e-8}) == "");
  REQUIRE(worst_mismatch(d_table, expected.d_table, {1e-7, 1e-8}) == "");
}

TEST_CASE("the loss alone is the loss with gradients") {
  Case test(DType::bf16, {9, 17, 33});
  test.run(1, Accumulate::yes);
  const auto with_gradients = test.losses.bytes();
  test.losses.fill(NAN);
  Stream stream(test_stream(1, cross_entropy_workspace_bytes(test.op_size(), 1)));
  CrossEntropyArgs args = test.args();
  args.d_x = Tensor();
  args.d_table = Tensor();
  cross_entropy(stream, args);
  REQUIRE(test.losses.bytes() == with_gradients);
}

TEST_CASE("cross entropy in chunks agrees with cross entropy of the parts") {
  // Logits of 17000 x 1000 pass the chunk's size, so this call works in two chunks at least.
  const Size size{17000, 4, 1000};
  REQUIRE(cross_entropy_chunk_tokens(size.N, size.V) < size.N);
  Case whole(DType::f32, size);
  whole.d_table.fill(0.0);
  whole.run(2, Accumulate::yes);
  const std::vector<double> sums = whole.d_table.values();
  const auto losses = whole.losses.bytes();
  const auto d_x = whole.d_x.bytes();

  Case parts(DType::f32, size);
  parts.d_table.fill(0.0);
  Stream stream(test_stream(2, cross_entropy_workspace_bytes(parts.op_size(), 2)));
  for (std::int64_t begin = 0; begin < size.N; begin += 5000) {
    const std::int64_t end = std::min(size.N, begin + 5000);
    CrossEntropyArgs args = parts.args();
    args.x = args.x.rows(begin, end);
    args.targets = args.targets.rows(begin, end);
    args.losses = args.losses.rows(begin, end);
    args.d_x = args.d_x.rows(begin, end);
    cross_entropy(stream, args);
  }
  REQUIRE(parts.losses.bytes() == losses);  // a row's sums do not depend on its neighbours
  REQUIRE(parts.d_x.bytes() == d_x);
  // Sums over 17000 rows of terms of order 0.1, in another order.
  REQUIRE(worst_mismatch(parts.d_table.values(), sums, {1e-5, 1e-4}) == "");
}

TEST_CASE("chunks of tokens are even and bounded") {
  REQUIRE(cross_entropy_chunk_tokens(256, 50257) == 256);
  REQUIRE(cross_entropy_chunk_tokens(1024, 50257) == 256);
  REQUIRE(cross_entropy_chunk_tokens(1, 257) == 8);
  for (const std::int64_t N : {1, 7, 333, 334, 4096}) {
    REQUIRE(cross_entropy_chunk_tokens(N, 50257) * 50257 * 4 <= (64 << 20));
  }
}

TEST_CASE("logits far from zero neither overflow nor vanish") {
  Case test(DType::f32, {2, 1, 3});
  test.x.set(std::vector<double>{1.0, -1.0});
  test.table.set(std::vector<double>{300.0, 200.0, 100.0});
  test.run(1, Accumulate::yes);
  const auto losses = test.oracle.losses(test.x.values(), test.table.values());
  REQUIRE(worst_mismatch(test.losses.values(), losses, {1e-6, 1e-6}) == "");
}

TEST_CASE("a NaN makes the loss NaN") {
  Case test(DType::f32, {2, 3, 40});
  std::vector<double> x = test.x.values();
  x[1] = NAN;
  test.x.set(x);
  test.run(1, Accumulate::yes);
  REQUIRE(std::isnan(test.losses.values()[0]));
  REQUIRE(!std::isnan(test.losses.values()[1]));
}

TEST_CASE("cross entropy gives the same bits on any number of threads") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case test(dtype, {70, 32, 1000});
    const auto bytes = cross_entropy_workspace_bytes(test.op_size(), 3);
    require_same_bits_for_any_thread_count(bytes, [&](Stream& stream) {
      CrossEntropyArgs args = test.args();
      args.accumulate_table = Accumulate::no;
      cross_entropy(stream, args);
      std::vector<std::byte> all = test.losses.bytes();
      for (const auto& part : {test.d_x.bytes(), test.d_table.bytes()}) {
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    });
  }
}

}  // namespace slackline::testing
