#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "compress/frame.h"
#include "tests/compress/kept_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

CodecSetting setting_of(DType values, double ratio = 0.05) {
  return {.kind = CodecKind::top_k,
          .error_feedback = ErrorFeedback::immediate,
          .ratio = ratio,
          .values = values};
}

// What a receiver gets, by a full sort of each matrix.
Message expected_of(const Message& values, const CodecSetting& setting) {
  Message result(kParts);
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    const std::vector<double> all = values.values(m);
    std::vector<std::size_t> order(all.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(all[a]) > std::abs(all[b]);
    });
    std::vector<double> kept(all.size(), 0.0);
    for (std::size_t i = 0; i < kept_elements(setting, kParts[m].shape); ++i) {
      const auto value = static_cast<float>(all[order[i]]);
      kept[order[i]] = setting.values == DType::f32 ? value : static_cast<float>(BFloat16(value));
    }
    result.tensor(m).set(kept);
  }
  return result;
}

struct Bench {
  explicit Bench(const CodecSetting& of, int num_threads = 2)
      : setting(of),
        codec(make_codec(of, kParts, 0, test_device())),
        stream(test_stream(num_threads, codec->workspace_bytes(test_workers(num_threads)))),
        frame(empty_frame(*codec)) {}

  void encode(Message& values, const Codec::Matrices& residual = {}) {
    codec->encode(stream, values.matrices(), residual, {}, frame);
    REQUIRE(frame.sentinels_intact());
    REQUIRE(stream.workspace().mark() == 0);
  }

  CodecSetting setting;
  std::unique_ptr<Codec> codec;
  Stream stream;
  GuardedTensor frame;
};

std::uint32_t* word_of(GuardedTensor& frame, std::size_t index) {
  return static_cast<std::uint32_t*>(frame.view().raw()) + index;
}

}  // namespace

TEST_CASE("a top_k frame has the bytes of its formula") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Bench bench(setting_of(dtype));
    // 25 of 495, 1 of 7 (0.35 is rounded to 0, and one is the least), 3840 of 76800: 4, 2 and 4 low
    // bits; upper parts of 25 + 30, 1 + 1 and 3840 + 4799 bits.
    const std::size_t words = (2 + 4) + (1 + 1) + (270 + 480);
    const std::size_t value_words =
        dtype == DType::f32 ? 25 + 1 + 3840 : 13 + 1 + 1920;  // an odd number of bf16 is filled up
    REQUIRE(bench.codec->frame_bytes() == 16 + 4 * (words + value_words));
    REQUIRE(bench.codec->frame_bytes() == frame_bytes(bench.setting, kParts));
  }
}

TEST_CASE("one element of a hundred in bf16 takes top_k about three bytes") {
  const CodecSetting setting = setting_of(DType::bf16, 0.01);
  const MatrixShape shape{.rows = 1024, .columns = 1920};
  // 19,661 elements: two bytes of value, and 6 + 1 + 1.56 bits of index.
  const double bytes = static_cast<double>(payload_bytes(setting, shape)) /
                       static_cast<double>(kept_elements(setting, shape));
  REQUIRE(bytes > 2.0 + 8.5 / 8);
  REQUIRE(bytes < 2.0 + 8.6 / 8);
}

TEST_CASE("a top_k message arrives as the largest elements of each matrix") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const double ratio : {1e-6, 0.05, 0.5, 1.0}) {
      Bench bench(setting_of(dtype, ratio));
      Message values = Message::normal_numbers(kParts, 1);
      const Message before = values;
      bench.encode(values);
      REQUIRE(values == before);
      Message out(kParts, 7.0);
      bench.codec->decode(bench.stream, bench.frame, out.matrices(), false);
      REQUIRE(out == expected_of(values, bench.setting));
      REQUIRE(out.sentinels_intact());
    }
  }
}

TEST_CASE("a top_k message may be added to what is there") {
  Bench bench(setting_of(DType::f32));
  Message values = Message::whole_numbers(kParts, 1);
  Message out = Message::whole_numbers(kParts, 50);
  const Message before = out;
  bench.encode(values);
  bench.codec->decode(bench.stream, bench.frame, out.matrices(), true);
  const Message addend = expected_of(values, bench.setting);
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    REQUIRE(out.values(m) == sum_of(before, addend, m));
  }
}

TEST_CASE("gathered top_k messages of three ranks add up exactly") {
  Bench bench(setting_of(DType::bf16));
  Message total(kParts);
  std::vector<std::vector<double>> expected(kParts.size());
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    expected[m].assign(kParts[m].shape.num_elements(), 0.0);
  }
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    Message values = Message::whole_numbers(kParts, 100 * rank + 1);
    bench.encode(values);
    bench.codec->decode(bench.stream, bench.frame, total.matrices(), true);
    const Message addend = expected_of(values, bench.setting);
    for (std::size_t m = 0; m < kParts.size(); ++m) {
      const std::vector<double> addends = addend.values(m);
      for (std::size_t i = 0; i < addends.size(); ++i) {
        expected[m][i] += addends[i];
      }
    }
  }
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    REQUIRE(total.values(m) == expected[m]);
  }
}

TEST_CASE("with top_k and error feedback nothing is lost") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Bench bench(setting_of(dtype));
    Message residual(kParts);
    Message arrived(kParts);
    Message given(kParts);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      Message values = Message::whole_numbers(kParts, step);
      for (std::size_t m = 0; m < kParts.size(); ++m) {
        given.tensor(m).set(sum_of(given, values, m));
      }
      Message owed = residual;
      for (std::size_t m = 0; m < kParts.size(); ++m) {
        owed.tensor(m).set(sum_of(residual, values, m));
      }
      bench.encode(values, residual.matrices());
      REQUIRE(residual == owed);
      bench.codec->settle(bench.stream, bench.frame, residual.matrices());
      bench.codec->decode(bench.stream, bench.frame, arrived.matrices(), true);
      for (std::size_t m = 0; m < kParts.size(); ++m) {
        REQUIRE(sum_of(arrived, residual, m) == given.values(m));
      }
    }
    // What has travelled as f32 is owed no more.
    const std::size_t kept = kept_elements(bench.setting, kParts[2].shape);
    REQUIRE(num_nonzero(residual, 2) <= kParts[2].shape.num_elements() - kept);
    REQUIRE(residual.sentinels_intact());
  }
}

TEST_CASE("top_k's rounding to bf16 stays in the residual") {
  Bench bench(setting_of(DType::bf16, 1.0));
  Message values = Message::normal_numbers(kParts, 3);
  Message residual(kParts);
  Message out(kParts);
  bench.encode(values, residual.matrices());
  bench.codec->settle(bench.stream, bench.frame, residual.matrices());
  bench.codec->decode(bench.stream, bench.frame, out.matrices(), false);
  REQUIRE(num_nonzero(residual, 2) > 70000);
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    REQUIRE(sum_of(out, residual, m) == values.values(m));
  }
}

TEST_CASE("Inf and NaN reach top_k's receiver and leave the residual") {
  Bench bench(setting_of(DType::bf16));
  Message values = Message::normal_numbers(kParts, 1);
  Message residual(kParts);
  values.tensor(2).view().data<float>()[76799] = std::nanf("");
  values.tensor(0).view().data<float>()[17] = -std::numeric_limits<float>::infinity();
  bench.encode(values, residual.matrices());
  bench.codec->settle(bench.stream, bench.frame, residual.matrices());
  Message out(kParts);
  bench.codec->decode(bench.stream, bench.frame, out.matrices(), false);
  REQUIRE(std::isnan(out.values(2)[76799]));
  REQUIRE(out.values(0)[17] == -std::numeric_limits<double>::infinity());
  REQUIRE(residual.values(2)[76799] == 0.0);
  REQUIRE(residual.values(0)[17] == 0.0);
}

TEST_CASE("top_k masks a gradient to what its message kept of the first matrix") {
  Bench bench(setting_of(DType::f32));
  Message values = Message::normal_numbers(kParts, 1);
  bench.encode(values);
  REQUIRE(bench.codec->gradient() == CodecGradient::masked);
  Message gradient(kParts, 3.0);
  bench.codec->mask(bench.stream, bench.frame, gradient.tensor(0));
  std::vector<double> expected = expected_of(values, bench.setting).values(0);
  for (double& value : expected) {
    value = value != 0.0 ? 3.0 : 0.0;
  }
  REQUIRE(gradient.values(0) == expected);
  REQUIRE(gradient.sentinels_intact());
}

TEST_CASE("top_k frames one behind another begin at words, whatever is kept") {
  for (const double ratio : {0.02, 0.03, 0.05, 0.5}) {
    const CodecSetting setting = setting_of(DType::bf16, ratio);
    Bench bench(setting);
    const auto bytes = static_cast<std::int64_t>(bench.codec->frame_bytes());
    REQUIRE(bytes % 4 == 0);
    GuardedTensor both(DType::u8, {2 * bytes});
    const Tensor second = both.view().rows(bytes, 2 * bytes);
    Message values = Message::normal_numbers(kParts, 1);
    bench.encode(values);
    bench.codec->encode(bench.stream, values.matrices(), {}, {}, second);
    bench.stream.synchronize();
    REQUIRE(std::memcmp(second.raw(), bench.frame.view().raw(), static_cast<std::size_t>(bytes)) ==
            0);
    Message out(kParts);
    bench.codec->decode(bench.stream, second, out.matrices(), false);
    REQUIRE(out == expected_of(values, setting));
    REQUIRE(both.sentinels_intact());
  }
}

TEST_CASE("a damaged top_k frame is refused before anything is written") {
  Bench bench(setting_of(DType::f32));
  Message values = Message::normal_numbers(kParts, 1);
  bench.encode(values);
  const auto require_refused = [&](const Tensor& frame, const std::string& message) {
    Message out(kParts, 7.0);
    REQUIRE_THROWS_AS(decode_now(*bench.codec, bench.stream, frame, out.matrices(), false),
                      CommError);
    REQUIRE_THROWS_WITH(decode_now(*bench.codec, bench.stream, frame, out.matrices(), true),
                        Catch::Contains(message));
    REQUIRE((test_device() == Device::cuda || out == Message(kParts, 7.0)));
    REQUIRE(bench.stream.workspace().mark() == 0);
  };
  const auto require_word_refused = [&](std::size_t at, std::uint32_t word, const char* message) {
    GuardedTensor damaged = bench.frame;
    *word_of(damaged, at) = word;
    require_refused(damaged, message);
  };
  const auto bytes = static_cast<std::int64_t>(bench.codec->frame_bytes());
  require_refused(bench.frame.view().rows(0, bytes - 1), "where top_k of 18512 are due");
  require_refused(bench.frame.view().rows(0, 0), "has 0 bytes");
  require_word_refused(0, 0, "begins with 0x0, 1, 3866, 18496");
  require_word_refused(0, 0x534c4652, "top_k has frames of version 1 where version 2 is due");
  require_word_refused(0, 0x534c4603, "top_k has frames of version 3 where version 2 is due");
  require_word_refused(1, 2, "begins with 0x534c4602, 2");
  require_word_refused(2, 3867, "3867, 18496");
  require_word_refused(3, 0, "3866, 0 where");
}

// A matrix's code is two words of upper parts and four of lower ones (matrix 0), one and one
// (matrix 1), 270 and 480 (matrix 2), each followed by its values.
TEST_CASE("damaged indices of a top_k frame are refused before anything is written") {
  Bench bench(setting_of(DType::f32));
  Message values = Message::normal_numbers(kParts, 1);
  bench.encode(values);
  constexpr std::size_t kFirst = 4;  // words of the header
  constexpr std::size_t kSecond = kFirst + 6 + 25;
  constexpr std::size_t kThird = kSecond + 2 + 1;
  const auto require_refused = [&](std::size_t at, auto damage, const std::string& message) {
    GuardedTensor damaged = bench.frame;
    std::uint32_t& word = *word_of(damaged, at);
    word = damage(word);
    Message out(kParts, 7.0);
    REQUIRE_THROWS_WITH(decode_now(*bench.codec, bench.stream, damaged, out.matrices(), false),
                        Catch::Contains(message));
    REQUIRE_THROWS_AS(decode_now(*bench.codec, bench.stream, damaged, out.matrices(), true),
                      CommError);
    REQUIRE((test_device() == Device::cuda || out == Message(kParts, 7.0)));
    REQUIRE(bench.stream.workspace().mark() == 0);
  };
  const auto one_less = [](std::uint32_t word) { return word & (word - 1); };
  const auto last_bit = [](std::uint32_t /*word*/) { return 1U << 31U; };
  const auto zero = [](std::uint32_t /*word*/) { return 0U; };
  const auto ones = [](std::uint32_t /*word*/) { return ~0U; };
  require_refused(kFirst, one_less, "matrix 0 has the indices of 24 elements where 25 are due");
  require_refused(kThird + 100, one_less, "matrix 2 has the indices of 3839 elements where 3840");
  require_refused(kSecond, ones, "matrix 1 has the indices of 32 elements where 1 are due");
  require_refused(kSecond, zero, "matrix 1 has the indices of 0 elements where 1 are due");
  require_refused(kSecond, last_bit, "matrix 1, position 0 of 1, index 1");  // 31 x 4 and its rest
  // Lower parts that are all alike: two indices of one upper part no longer ascend.
  const auto third = *word_of(bench.frame, kThird + 270 + 100);
  REQUIRE(third != 0);
  require_refused(kThird + 270 + 100, zero, "matrix 2, position 80");
}

TEST_CASE("a top_k frame has the same bytes for any number of threads") {
  std::vector<std::byte> expected;
  for (const int num_threads : {1, 2, 3}) {
    Bench bench(setting_of(DType::bf16), num_threads);
    Message values = Message::normal_numbers(kParts, 1);
    bench.encode(values);
    expected = num_threads == 1 ? bench.frame.bytes() : expected;
    REQUIRE(bench.frame.bytes() == expected);
  }
}

TEST_CASE("on the rehearsal device top_k's frames pass whatever they hold") {
  require_rehearsed(*make_codec(setting_of(DType::f32), kParts, 0, test_device()));
}

TEST_CASE("top_k refuses matrices of other shapes") {
  Bench bench(setting_of(DType::f32));
  Message values(kParts);
  Codec::Matrices matrices = values.matrices();
  matrices.pop_back();
  REQUIRE_THROWS_WITH(bench.codec->encode(bench.stream, matrices, {}, {}, bench.frame),
                      Catch::Contains("the values of top_k has 2 matrices where 3 are due"));
  matrices.push_back(matrices[0]);
  REQUIRE_THROWS_WITH(bench.codec->encode(bench.stream, matrices, {}, {}, bench.frame),
                      Catch::Contains("matrix 2 of the values of top_k is f32 (33, 15)"));
  REQUIRE_THROWS_WITH(make_codec(setting_of(DType::f32, 1.0),
                                 {{.name = "x", .shape = {1 << 20, 1 << 10}}},
                                 0,
                                 test_device()),
                      Catch::Contains("is too large for its header"));
}

}  // namespace slackline::testing
