#include "core/kernels/matmul/matmul.h"

#include <cmath>

#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/matmul/matmul_backends.h"
#include "tests/reference/matmul_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/skipped.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

struct Size {
  std::int64_t M;
  std::int64_t N;
  std::int64_t K;
};

// One element; less than, exactly and more than one tile (8 x 48); several blocks of sums (K above
// 1024); several groups of rows (M above 1024); several tasks of columns.
constexpr Size kSizes[] = {{1, 1, 1},
                           {1, 50, 7},
                           {8, 48, 16},
                           {9, 49, 33},
                           {5, 3, 1100},
                           {40, 200, 100},
                           {17, 97, 2500},
                           {1100, 13, 60}};

enum class Units { f32, bf16 };  // of the CPU, which of its two ways; the CUDA device has one

// The operands of one product and what it writes.
struct Case {
  Case(DType dtype_, DType c_dtype, Size size_, Transpose transpose_a, Transpose transpose_b)
      : dtype(dtype_),
        size(size_),
        oracle{static_cast<std::size_t>(size.M),
               static_cast<std::size_t>(size.N),
               static_cast<std::size_t>(size.K),
               transpose_a,
               transpose_b},
        a(random_tensor(
            dtype,
            transpose_a == Transpose::yes ? Shape{size.K, size.M} : Shape{size.M, size.K},
            {.seed = 1})),
        b(random_tensor(
            dtype,
            transpose_b == Transpose::yes ? Shape{size.N, size.K} : Shape{size.K, size.N},
            {.seed = 2})),
        c(c_dtype, {size.M, size.N}) {}

  [[nodiscard]] MatmulArgs args() {
    return {.a = a,
            .b = b,
            .c = c,
            .transpose_a = oracle.transpose_a,
            .transpose_b = oracle.transpose_b};
  }

  [[nodiscard]] reference::Matmul::Result expected() const {
    return oracle.multiply(a.values(), b.values());
  }

  DType dtype;
  Size size;
  reference::Matmul oracle;
  GuardedTensor a, b, c;
};

std::size_t workspace_of(const MatmulArgs& args, Units units, int num_threads) {
  if (test_device() == Device::cuda) {
    return matmul_workspace_bytes(args, test_workers());
  }
  return units == Units::bf16 ? cpu::matmul_by_onednn_workspace_bytes(args, num_threads)
                              : cpu::matmul_in_f32_workspace_bytes(args, num_threads);
}

void multiply(StreamView stream, const MatmulArgs& args, Units units) {
  if (test_device() == Device::cuda) {
    matmul(stream, args);
  } else if (units == Units::bf16) {
    cpu::matmul_by_onednn(stream, args);
  } else if (args.a.dtype() == DType::bf16) {
    cpu::matmul_in_f32<BFloat16>(stream, args);
  } else {
    cpu::matmul_in_f32<float>(stream, args);
  }
}

// Runs on two threads with a workspace of exactly the promised size.
void run(const MatmulArgs& args, Units units = Units::f32) {
  const std::size_t bytes = workspace_of(args, units, 2);
  Stream stream(test_stream(2, bytes));
  multiply(stream, args, units);
  REQUIRE((test_device() == Device::cuda || stream.workspace().high_water() == bytes));
}

// What one element may be off by. The K roundings of 6e-8, each of a partial sum of about sqrt(K)
// terms, are independent and add to about 6e-8 of the terms' magnitudes; eight times that leaves
// room for the worst of many thousand elements. A bf16 C rounds once more, and on the CUDA device
// before an epilogue that is a kernel of its own as well.
double allowed(double expected, double magnitude, DType c_dtype) {
  const double sums = 8 * 6e-8 * magnitude + 1e-7;
  const double before = test_device() == Device::cuda ? 0x1p-9 * magnitude : 0.0;
  return sums + (c_dtype == DType::bf16 ? 0x1p-8 * std::abs(expected) + before : 0.0);
}

// How many elements of `actual` are off.
std::size_t num_wrong(const std::vector<double>& actual,
                      const std::vector<double>& expected,
                      const std::vector<double>& magnitude,
                      DType c_dtype) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    wrong += error <= allowed(expected[i], magnitude[i], c_dtype) ? 0 : 1;
  }
  return wrong;
}

void require_product(DType dtype, DType c_dtype, Size size, Units units) {
  for (const Transpose transpose_a : {Transpose::no, Transpose::yes}) {
    for (const Transpose transpose_b : {Transpose::no, Transpose::yes}) {
      Case test(dtype, c_dtype, size, transpose_a, transpose_b);
      INFO(size.M << " x " << size.N << " x " << size.K << " " << name_of(dtype) << " to "
                  << name_of(c_dtype) << (transpose_a == Transpose::yes ? ", A transposed" : "")
                  << (transpose_b == Transpose::yes ? ", B transposed" : ""));
      run(test.args(), units);
      const auto expected = test.expected();
      REQUIRE(num_wrong(test.c.values(), expected.c, expected.magnitude, c_dtype) == 0);
      REQUIRE(test.c.sentinels_intact());
    }
  }
}

void require_accumulation(DType dtype, Size size, Units units) {
  Case test(dtype, DType::f32, size, Transpose::yes, Transpose::no);
  INFO(size.M << " x " << size.N << " x " << size.K << " " << name_of(dtype));
  auto expected = test.expected();
  const auto before = random_values(expected.c.size(), {.seed = 3});
  test.c.set(before);
  const auto held = test.c.values();
  for (std::size_t i = 0; i < held.size(); ++i) {
    expected.c[i] += held[i];
    expected.magnitude[i] += std::abs(held[i]);
  }
  MatmulArgs args = test.args();
  args.accumulate = Accumulate::yes;
  run(args, units);
  REQUIRE(num_wrong(test.c.values(), expected.c, expected.magnitude, DType::f32) == 0);
  REQUIRE(test.c.sentinels_intact());
}

void require_forward_epilogue(DType dtype, DType c_dtype, Size size, Units units) {
  Case test(dtype, c_dtype, size, Transpose::no, Transpose::no);
  GuardedTensor bias(random_tensor(DType::f32, {size.N}, {.seed = 3}));
  GuardedTensor gelu_output(dtype, {size.M, size.N});
  MatmulArgs args = test.args();
  args.bias = bias;
  args.gelu_output = gelu_output;
  run(args, units);

  auto expected = test.expected();
  for (std::size_t i = 0; i < expected.c.size(); ++i) {
    expected.c[i] += bias.values()[i % static_cast<std::size_t>(size.N)];
  }
  REQUIRE(num_wrong(test.c.values(), expected.c, expected.magnitude, c_dtype) == 0);
  // GELU takes C as stored, so only its own error counts, and it is well below 1e-6.
  std::vector<double> activated = test.c.values();
  for (double& x : activated) {
    x = reference::gelu(x);
  }
  REQUIRE(num_wrong(gelu_output.values(), activated, expected.magnitude, dtype) == 0);
  REQUIRE(test.c.sentinels_intact());
  REQUIRE(gelu_output.sentinels_intact());
}

// A matrix whose rows lie `gap` elements further apart than they are long; `between` is there.
GuardedTensor with_gaps(DType dtype,
                        const std::vector<double>& values,
                        std::int64_t columns,
                        std::int64_t gap,
                        double between) {
  const auto width = static_cast<std::size_t>(columns);
  std::vector<double> spread;
  for (std::size_t i = 0; i < values.size(); ++i) {
    spread.push_back(values[i]);
    if (i % width == width - 1) {
      spread.insert(spread.end(), static_cast<std::size_t>(gap), between);
    }
  }
  return {dtype,
          {static_cast<std::int64_t>(values.size()) / columns, columns + gap},
          std::span<const double>(spread)};
}

// A product's operands may lie so, and its C be such; rows of A always lie apart.
struct RowsApart {
  Transpose transpose_a;
  Transpose transpose_b;
  bool in_c;  // whether those of C do
  DType c_dtype = DType::f32;
  Accumulate accumulate = Accumulate::no;
};

void require_product_of_rows_apart(DType dtype, Size size, const RowsApart& rows, Units units) {
  constexpr std::int64_t kGap = 7;
  constexpr double kKept = 0.25;  // between the rows of C
  const std::int64_t gap_of_c = rows.in_c ? kGap : 0;
  Case test(dtype, rows.c_dtype, size, rows.transpose_a, rows.transpose_b);
  auto expected = test.expected();
  std::vector<double> held(expected.c.size(), NAN);
  if (rows.accumulate == Accumulate::yes) {
    held = GuardedTensor(DType::f32, {size.M, size.N}, random_values(held.size(), {.seed = 3}))
               .values();
    for (std::size_t i = 0; i < held.size(); ++i) {
      expected.c[i] += held[i];
      expected.magnitude[i] += std::abs(held[i]);
    }
  }
  MatmulArgs args = test.args();
  GuardedTensor a = with_gaps(dtype, test.a.values(), args.a.dim(1), kGap, NAN);
  GuardedTensor c = with_gaps(rows.c_dtype, held, size.N, gap_of_c, kKept);
  args.a = Tensor(a.view().raw(), dtype, args.a.shape(), a.view().device());
  args.row_of_a = args.a.dim(1) + kGap;
  args.c = Tensor(c.view().raw(), rows.c_dtype, args.c.shape(), c.view().device());
  args.row_of_c = rows.in_c ? size.N + kGap : 0;
  args.accumulate = rows.accumulate;
  run(args, units);
  std::vector<double> made;
  std::size_t num_kept = 0;
  const std::vector<double> all = c.values();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % (size.N + gap_of_c);
    if (column < size.N) {
      made.push_back(all[i]);
    } else {
      num_kept += all[i] == kKept ? 1 : 0;
    }
  }
  REQUIRE(num_wrong(made, expected.c, expected.magnitude, rows.c_dtype) == 0);
  REQUIRE(num_kept == static_cast<std::size_t>(size.M * gap_of_c));
  REQUIRE(a.sentinels_intact());
  REQUIRE(c.sentinels_intact());
}

void require_same_bits_on_any_threads(Units units) {
  Case test(DType::bf16, DType::bf16, {1100, 500, 1100}, Transpose::no, Transpose::yes);
  const MatmulArgs args = test.args();
  require_same_bits_for_any_thread_count(workspace_of(args, units, 3), [&](Stream& stream) {
    multiply(stream, args, units);
    return test.c.bytes();
  });
}

}  // namespace

TEST_CASE("matmul matches the oracle for every type, size and transposition") {
  for (const Size size : kSizes) {
    require_product(DType::f32, DType::f32, size, Units::f32);
    require_product(DType::bf16, DType::f32, size, Units::f32);
    require_product(DType::bf16, DType::bf16, size, Units::f32);
  }
}

TEST_CASE("accumulation adds to what C holds") {
  for (const Size size : kSizes) {
    require_accumulation(DType::f32, size, Units::f32);
    require_accumulation(DType::bf16, size, Units::f32);
  }
}

TEST_CASE("rows of A and C may lie apart, and what is between them stays") {
  for (const Size size : kSizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      // The head's logits, its gradients of x and of the table, first and later; and two more.
      for (const RowsApart rows :
           {RowsApart{Transpose::no, Transpose::yes, true},
            {Transpose::no, Transpose::no, false, dtype},
            {Transpose::yes, Transpose::no, false},
            {Transpose::yes, Transpose::no, false, DType::f32, Accumulate::yes},
            {Transpose::yes, Transpose::yes, true},
            {Transpose::no, Transpose::yes, true, dtype}}) {
        INFO(size.M << " x " << size.N << " x " << size.K << " " << name_of(dtype)
                    << (rows.transpose_a == Transpose::yes ? ", A transposed" : "")
                    << (rows.transpose_b == Transpose::yes ? ", B transposed" : ""));
        require_product_of_rows_apart(dtype, size, rows, Units::f32);
        if (test_device() == Device::cpu &&
            (dtype == DType::f32 || cpu::onednn_multiplies_bf16())) {
          require_product_of_rows_apart(dtype, size, rows, Units::bf16);
        }
      }
    }
  }
}

TEST_CASE("a weight's gradient comes with the bias's, which is added to") {
  std::vector<Size> sizes(std::begin(kSizes), std::end(kSizes));
  sizes.push_back({600, 400, 300});  // large enough for the CUDA device to time algorithms
  for (const Size size : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        INFO(size.M << " x " << size.N << " x " << size.K << " " << name_of(dtype)
                    << (accumulate == Accumulate::yes ? ", added" : ""));
        Case test(dtype, DType::f32, size, Transpose::yes, Transpose::no);
        auto expected = test.expected();
        GuardedTensor bias_gradient(random_tensor(DType::f32, {size.N}, {.seed = 4}));
        std::vector<double> sums = bias_gradient.values();
        std::vector<double> magnitudes(sums.size(), 0.0);
        const std::vector<double> b = test.b.values();
        for (std::size_t i = 0; i < b.size(); ++i) {
          sums[i % sums.size()] += b[i];
          magnitudes[i % sums.size()] += std::abs(b[i]);
        }
        if (accumulate == Accumulate::yes) {
          test.c.set(random_values(expected.c.size(), {.seed = 3}));
          const std::vector<double> held = test.c.values();
          for (std::size_t i = 0; i < held.size(); ++i) {
            expected.c[i] += held[i];
            expected.magnitude[i] += std::abs(held[i]);
          }
        }
        MatmulArgs args = test.args();
        args.accumulate = accumulate;
        args.bias_gradient = bias_gradient;
        Stream stream(test_stream(2, matmul_workspace_bytes(args, test_workers(2))));
        matmul(stream, args);
        REQUIRE(num_wrong(test.c.values(), expected.c, expected.magnitude, DType::f32) == 0);
        REQUIRE(num_wrong(bias_gradient.values(), sums, magnitudes, DType::f32) == 0);
        REQUIRE(test.c.sentinels_intact());
        REQUIRE(bias_gradient.sentinels_intact());
      }
    }
  }
}

TEST_CASE("a bias's gradient has the bits of the op that makes it alone") {
  Case test(DType::bf16, DType::f32, {9, 49, 333}, Transpose::yes, Transpose::no);
  GuardedTensor together(random_tensor(DType::f32, {49}, {.seed = 4}));
  GuardedTensor alone(together);
  MatmulArgs args = test.args();
  args.bias_gradient = together;
  Stream stream(test_stream(2, matmul_workspace_bytes(args, test_workers(2))));
  matmul(stream, args);
  bias_gradient(stream, test.b, alone);
  if (test_device() == Device::cpu) {
    REQUIRE(together.bytes() == alone.bytes());
  } else {
    // Sums in another order: 333 roundings, each of 6e-8 of a partial sum of about 20, add up as
    // their root to 2e-5. Five times that is left for the worst of 49.
    REQUIRE(worst_mismatch(together.values(), alone.values(), {.absolute = 1e-4}) == "");
  }
}

TEST_CASE("the forward epilogue adds the bias and keeps both GELU's input and output") {
  for (const Size size : {Size{1, 1, 1}, Size{9, 49, 33}, Size{17, 97, 2500}}) {
    require_forward_epilogue(DType::f32, DType::f32, size, Units::f32);
    require_forward_epilogue(DType::bf16, DType::bf16, size, Units::f32);
    require_forward_epilogue(DType::bf16, DType::f32, size, Units::f32);
  }
}

TEST_CASE("the backward epilogue multiplies by GELU's derivative") {
  for (const Size size : {Size{1, 1, 1}, Size{9, 49, 33}, Size{17, 97, 2500}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Case test(dtype, dtype, size, Transpose::no, Transpose::yes);
      GuardedTensor gelu_input(random_tensor(dtype, {size.M, size.N}, {.seed = 4}));
      MatmulArgs args = test.args();
      args.gelu_input = gelu_input;
      run(args);
      auto expected = test.expected();
      for (std::size_t i = 0; i < expected.c.size(); ++i) {
        expected.c[i] *= reference::gelu_derivative(gelu_input.values()[i]);
        expected.magnitude[i] *= 1.13;  // the derivative's largest value
      }
      REQUIRE(num_wrong(test.c.values(), expected.c, expected.magnitude, dtype) == 0);
    }
  }
}

// A product by one rounds nothing, so what is left is the error of the tanh form itself.
TEST_CASE("GELU and its derivative in an epilogue are right to 1e-6 over their whole range") {
  constexpr std::int64_t kRows = 641;  // x = -8, -7.975, ... 8
  Case forward(DType::f32, DType::f32, {kRows, 3, 1}, Transpose::no, Transpose::no);
  std::vector<double> inputs;
  for (std::int64_t i = 0; i < kRows; ++i) {
    inputs.push_back(static_cast<float>(-8.0 + 0.025 * static_cast<double>(i)));
  }
  forward.a.set(inputs);
  forward.b.fill(1.0);
  GuardedTensor gelu_output(DType::f32, {kRows, 3});
  MatmulArgs args = forward.args();
  args.gelu_output = gelu_output;
  run(args);
  Case backward(DType::f32, DType::f32, {kRows, 3, 1}, Transpose::no, Transpose::no);
  backward.a.fill(1.0);
  backward.b.fill(1.0);
  GuardedTensor gelu_input(DType::f32, {kRows, 3});
  std::vector<double> values;
  std::vector<double> slopes;
  std::vector<double> repeated;
  for (const double x : inputs) {
    for (int column = 0; column < 3; ++column) {
      repeated.push_back(x);
      values.push_back(reference::gelu(x));
      slopes.push_back(reference::gelu_derivative(x));
    }
  }
  gelu_input.set(repeated);
  args = backward.args();
  args.gelu_input = gelu_input;
  run(args);
  const Tolerance bound{.relative = 1e-6, .absolute = 1e-6};
  REQUIRE(worst_mismatch(gelu_output.values(), values, bound) == "");
  REQUIRE(worst_mismatch(backward.c.values(), slopes, bound) == "");
}

TEST_CASE("matmul gives the same bits on any number of threads") {
  require_same_bits_on_any_threads(Units::f32);
}

// The CPU's second way to multiply bf16, for which a processor needs AVX-512.
TEST_CASE("bf16 products by oneDNN are right as well, with all that may come with them",
          "[avx512]") {
  if (!cpu::onednn_multiplies_bf16()) {
    skip_test("no AVX-512: bf16 products by oneDNN are not made here");
    return;
  }
  for (const Size size : {Size{1, 1, 1}, Size{9, 49, 33}, Size{520, 200, 100}}) {
    require_product(DType::bf16, DType::f32, size, Units::bf16);
    require_product(DType::bf16, DType::bf16, size, Units::bf16);
  }
  for (const Size size : kSizes) {
    require_accumulation(DType::bf16, size, Units::bf16);
  }
  for (const Size size : {Size{1, 1, 1}, Size{9, 49, 33}, Size{17, 97, 2500}}) {
    require_forward_epilogue(DType::bf16, DType::bf16, size, Units::bf16);
  }
  require_same_bits_on_any_threads(Units::bf16);
}

TEST_CASE("an infinity or NaN in an operand stays in its row and column") {
  Case test(DType::f32, DType::f32, {9, 49, 33}, Transpose::no, Transpose::no);
  std::vector<double> a = test.a.values();
  a[2 * 33 + 5] = NAN;
  test.a.set(a);
  run(test.args());
  const std::vector<double> c = test.c.values();
  for (std::size_t i = 0; i < c.size(); ++i) {
    REQUIRE(std::isnan(c[i]) == (i / 49 == 2));
  }
}

TEST_CASE("a product without elements writes nothing") {
  GuardedTensor a(DType::f32, {0, 3});
  GuardedTensor b(random_tensor(DType::f32, {3, 4}, {}));
  GuardedTensor c(DType::f32, {0, 4});
  const MatmulArgs args{.a = a, .b = b, .c = c};
  Stream stream(test_stream(1));
  REQUIRE(matmul_workspace_bytes(args, 1) == 0);
  matmul(stream, args);
  REQUIRE(c.sentinels_intact());
}

TEST_CASE("matmul refuses operands that do not fit") {
  Stream stream(test_stream(1, 1U << 20U));
  Case test(DType::f32, DType::f32, {4, 5, 6}, Transpose::no, Transpose::no);
  MatmulArgs args = test.args();
  args.transpose_b = Transpose::yes;
  REQUIRE_THROWS_WITH(matmul(stream, args), Catch::Contains("6 vs 5"));
  args = test.args();
  GuardedTensor bias(DType::f32, {4});
  args.bias = bias;
  REQUIRE_THROWS_WITH(matmul(stream, args), Catch::Contains("matmul bias is (4), due is (5)"));
  args = test.args();
  GuardedTensor gelu(DType::f32, {4, 5});
  args.gelu_output = gelu;
  args.accumulate = Accumulate::yes;
  REQUIRE_THROWS_WITH(matmul(stream, args), Catch::Contains("cannot accumulate"));
  args = test.args();
  args.bias_gradient = bias;
  REQUIRE_THROWS_WITH(matmul(stream, args), Catch::Contains("bias_gradient is (4), due is (5)"));
  GuardedTensor gradient(DType::f32, {5});
  args.bias_gradient = gradient;
  args.gelu_output = gelu;
  REQUIRE_THROWS_WITH(matmul(stream, args), Catch::Contains("takes B as it is"));
}

}  // namespace slackline::testing
