#include "core/kernels/attention/attention.h"

#include <numeric>

#include "tests/reference/attention_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

using Size = AttentionSize;

// One element; less than, exactly and more than a panel (48) and a block (96) of keys; several
// ranges of queries (480); head dimensions that are no multiple of a vector.
constexpr Size kSizes[] = {{.B = 1, .T = 1, .H = 1, .D = 1},
                           {.B = 2, .T = 3, .H = 3, .D = 5},
                           {.B = 1, .T = 48, .H = 1, .D = 16},
                           {.B = 2, .T = 64, .H = 2, .D = 64},
                           {.B = 1, .T = 96, .H = 2, .D = 8},
                           {.B = 1, .T = 101, .H = 1, .D = 33},
                           {.B = 1, .T = 500, .H = 1, .D = 24}};

const DropoutKey kDropout{.probability = 0.3F, .site = {11, 22}, .step = 5, .first_sample = 7};

struct Case {
  Case(DType dtype_, const Size& size_, const DropoutKey& dropout_ = {})
      : dtype(dtype_),
        size{size_.B, size_.T, size_.H, size_.D, dtype},
        dropout(dropout_),
        qkv(random_tensor(dtype, {size.B, size.T, 3 * size.H * size.D}, {.seed = 1})),
        output(dtype, {size.B, size.T, size.H * size.D}),
        log_sum_exp(DType::f32, {size.B, size.H, size.T}),
        d_output(random_tensor(dtype, {size.B, size.T, size.H * size.D}, {.seed = 2})),
        d_qkv(dtype, {size.B, size.T, 3 * size.H * size.D}),
        oracle{static_cast<std::size_t>(size.B),
               static_cast<std::size_t>(size.T),
               static_cast<std::size_t>(size.H),
               static_cast<std::size_t>(size.D),
               dropout,
               dropout.probability > 0.0F ? 2U : 0U} {}

  void run(Stream& stream) {
    const int H = static_cast<int>(size.H);
    const auto first_head = static_cast<std::int64_t>(oracle.first_head);
    attention_forward(stream,
                      {.qkv = qkv,
                       .output = output,
                       .log_sum_exp = log_sum_exp,
                       .num_heads = H,
                       .dropout = dropout,
                       .first_head = first_head});
    attention_backward(stream,
                       {.qkv = qkv,
                        .output = output,
                        .log_sum_exp = log_sum_exp,
                        .d_output = d_output,
                        .d_qkv = d_qkv,
                        .num_heads = H,
                        .dropout = dropout,
                        .first_head = first_head});
  }

  [[nodiscard]] bool sentinels_intact() const {
    return output.sentinels_intact() && log_sum_exp.sentinels_intact() && d_qkv.sentinels_intact();
  }

  DType dtype;
  Size size;
  DropoutKey dropout;
  GuardedTensor qkv, output, log_sum_exp, d_output, d_qkv;
  reference::Attention oracle;
};

// f32: scores of order 1 to 5 are off by a few times 1e-7, and so are probabilities, relatively;
// gradients are sums of at most 500 such terms that shrink as 1 / T.
// bf16: the output rounds to 8 bits, and delta is made from the rounded output.
Tolerance tolerance(DType dtype) {
  return dtype == DType::f32 ? Tolerance{.relative = 4e-6, .absolute = 4e-6}
                             : Tolerance{.relative = 0x1p-8, .absolute = 1.5e-2};
}

void require_match(Case& test) {
  INFO(name_of(test.dtype) << " B " << test.size.B << " T " << test.size.T << " H " << test.size.H
                           << " D " << test.size.D << " dropout " << test.dropout.probability);
  const std::size_t bytes = attention_workspace_bytes(test.size, test_workers(2));
  Stream stream(test_stream(2, bytes));
  test.run(stream);
  // cuDNN may need less than its bound, or leave a shape to the own kernels.
  const bool may_need_less = test_device() == Device::cuda && test.dtype == DType::bf16;
  REQUIRE(stream.workspace().high_water() <= bytes);
  REQUIRE((may_need_less || stream.workspace().high_water() == bytes));
  const std::vector<double> qkv = test.qkv.values();
  const auto expected = test.oracle.forward(qkv);
  const auto d_qkv = test.oracle.backward(qkv, test.d_output.values());
  REQUIRE(worst_mismatch(test.output.values(), expected.output, tolerance(test.dtype)) == "");
  REQUIRE(worst_mismatch(test.log_sum_exp.values(), expected.log_sum_exp, {1e-6, 2e-6}) == "");
  REQUIRE(worst_mismatch(test.d_qkv.values(), d_qkv, tolerance(test.dtype)) == "");
  REQUIRE(test.sentinels_intact());
}

}  // namespace

TEST_CASE("attention matches the oracle, forward and backward") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size& size : kSizes) {
      Case test(dtype, size);
      require_match(test);
    }
  }
}

// More than a grid of a CUDA device has blocks in its second dimension.
TEST_CASE("attention of very many heads matches the oracle", "[slow]") {
  Case test(DType::f32, {.B = 8193, .T = 1, .H = 8, .D = 1});
  require_match(test);
}

TEST_CASE("attention drops the probabilities that the key names") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size& size : {kSizes[1], kSizes[3], kSizes[5]}) {
      Case test(dtype, size, kDropout);
      require_match(test);
    }
  }
}

TEST_CASE("the attention oracle's gradient is that of finite differences") {
  for (const DropoutKey& dropout : {DropoutKey{}, kDropout}) {
    Case test(DType::f32, {.B = 1, .T = 4, .H = 2, .D = 3}, dropout);
    const std::vector<double> d_output = test.d_output.values();
    const auto f = [&](const std::vector<double>& qkv) {
      const auto output = test.oracle.forward(qkv).output;
      return std::inner_product(output.begin(), output.end(), d_output.begin(), 0.0);
    };
    const auto expected = test.oracle.backward(test.qkv.values(), d_output);
    REQUIRE(worst_mismatch(finite_differences(f, test.qkv.values()), expected, {1e-7, 1e-8}) == "");
  }
}

TEST_CASE("a query ignores the keys after it") {
  constexpr std::ptrdiff_t kSeen = 60;
  Case test(DType::f32, {.B = 1, .T = 101, .H = 1, .D = 8});
  Stream stream(test_stream(1, attention_workspace_bytes(test.size, test_workers(1))));
  test.run(stream);
  const std::vector<double> before = test.output.values();
  std::vector<double> qkv = test.qkv.values();
  std::fill(qkv.begin() + kSeen * 24, qkv.end(), 1e6);
  test.qkv.set(qkv);
  test.run(stream);
  const std::vector<double> after = test.output.values();
  REQUIRE(std::equal(before.begin(), before.begin() + kSeen * 8, after.begin()));
}

TEST_CASE("attention gives the same bits on any number of threads") {
  for (const DropoutKey& dropout : {DropoutKey{}, kDropout}) {
    Case test(DType::f32, {.B = 2, .T = 500, .H = 2, .D = 16}, dropout);
    require_same_bits_for_any_thread_count(attention_workspace_bytes(test.size, test_workers(3)),
                                           [&](Stream& stream) {
                                             test.run(stream);
                                             auto all = test.output.bytes();
                                             const auto d_qkv = test.d_qkv.bytes();
                                             all.insert(all.end(), d_qkv.begin(), d_qkv.end());
                                             return all;
                                           });
  }
}

TEST_CASE("a head gives the same bits whoever owns it") {
  Case whole(DType::f32, {.B = 2, .T = 50, .H = 4, .D = 8}, kDropout);
  Case part(DType::f32, {.B = 2, .T = 50, .H = 1, .D = 8}, kDropout);
  part.oracle.first_head = whole.oracle.first_head + 3;
  std::vector<double> qkv;
  const std::vector<double> all = whole.qkv.values();
  for (std::size_t at = 0; at < all.size(); at += 32) {
    qkv.insert(qkv.end(),
               all.begin() + static_cast<std::ptrdiff_t>(at) + 24,
               all.begin() + static_cast<std::ptrdiff_t>(at) + 32);
  }
  part.qkv.set(qkv);
  Stream stream(test_stream(2, attention_workspace_bytes(whole.size, test_workers(2))));
  whole.run(stream);
  part.run(stream);
  const std::vector<double> output = whole.output.values();
  const std::vector<double> own = part.output.values();
  for (std::size_t row = 0; row < 100; ++row) {
    REQUIRE(std::equal(&own[row * 8], &own[row * 8] + 8, &output[row * 32 + 24]));
  }
}

TEST_CASE("decoding a token equals the last row of the forward pass") {
  for (const Size& size : kSizes) {
    INFO("T " << size.T << " D " << size.D);
    Case test(DType::f32, size);
    Stream stream(test_stream(2, attention_workspace_bytes(size, test_workers(2))));
    test.run(stream);

    // The caches hold more than counts, poisoned.
    const std::int64_t C = size.H * size.D;
    const std::int64_t capacity = size.T + 3;
    GuardedTensor query(DType::f32, {size.B, C});
    GuardedTensor keys(DType::f32, {size.B, capacity, C});
    GuardedTensor values(DType::f32, {size.B, capacity, C});
    GuardedTensor output(DType::f32, {size.B, C});
    std::vector<double> expected;
    const Tensor qkv = test.qkv;
    const Tensor all = test.output;
    for (std::int64_t b = 0; b < size.B; ++b) {
      const float* rows = qkv.data<float>() + b * size.T * 3 * C;
      std::copy_n(rows + (size.T - 1) * 3 * C, C, query.view().data<float>() + b * C);
      for (std::int64_t t = 0; t < size.T; ++t) {
        const std::int64_t to = (b * capacity + t) * C;
        std::copy_n(rows + t * 3 * C + C, C, keys.view().data<float>() + to);
        std::copy_n(rows + t * 3 * C + 2 * C, C, values.view().data<float>() + to);
      }
      const float* last = all.data<float>() + (b * size.T + size.T - 1) * C;
      expected.insert(expected.end(), last, last + C);
    }
    attention_decode(stream,
                     {.query = query,
                      .keys = keys,
                      .values = values,
                      .output = output,
                      .num_heads = static_cast<int>(size.H),
                      .length = size.T});
    REQUIRE(worst_mismatch(output.values(), expected, tolerance(DType::f32)) == "");
    REQUIRE(output.sentinels_intact());
  }
}

TEST_CASE("attention refuses tensors that do not fit") {
  Case test(DType::f32, kSizes[1]);
  Stream stream(test_stream(1, 1U << 20U));
  AttentionForward args{.qkv = test.qkv, .output = test.output, .log_sum_exp = test.log_sum_exp};
  args.num_heads = 4;
  REQUIRE_THROWS_WITH(attention_forward(stream, args), Catch::Contains("for 4 heads"));
  args.num_heads = 3;
  args.output = test.d_qkv;
  REQUIRE_THROWS_WITH(attention_forward(stream, args),
                      Catch::Contains("attention_forward output is f32 (2, 3, 45)"));
}

}  // namespace slackline::testing
