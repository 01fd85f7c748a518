#include <algorithm>
#include <cmath>
#include <functional>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "compress/frame.h"
#include "tests/compress/kept_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

constexpr std::uint64_t kSeed = 1234;
constexpr MessageKey kKey = {.seed = kSeed, .step = 5, .micro_batch = 2};

CodecSetting setting_of(DType values, ErrorFeedback feedback, double ratio = 0.05) {
  return {
      .kind = CodecKind::random_k, .error_feedback = feedback, .ratio = ratio, .values = values};
}

struct Rank {
  explicit Rank(const CodecSetting& of,
                const std::vector<CodecPart>& parts = kParts,
                int num_threads = 2)
      : setting(of),
        codec(make_codec(of, parts, kSeed, test_device())),
        stream(test_stream(num_threads, codec->workspace_bytes(test_workers(num_threads)))),
        frame(empty_frame(*codec)) {}

  void encode(Message& values, const Codec::Matrices& residual = {}, const MessageKey& key = kKey) {
    codec->encode(stream, values.matrices(), residual, key, frame);
    REQUIRE(frame.sentinels_intact());
    REQUIRE(stream.workspace().mark() == 0);
  }

  void decode(Message& out) { codec->decode(stream, frame, out.matrices(), false); }

  CodecSetting setting;
  std::unique_ptr<Codec> codec;
  Stream stream;
  GuardedTensor frame;
};

// 1 where a message of this key keeps an element.
Message kept_of(const CodecSetting& setting, const MessageKey& key = kKey) {
  CodecSetting unscaled = setting;
  unscaled.error_feedback = ErrorFeedback::immediate;
  Rank rank(unscaled);
  Message ones(kParts, 1.0);
  Message out(kParts);
  rank.encode(ones, {}, key);
  rank.decode(out);
  return out;
}

double scale_of(const CodecSetting& setting, std::size_t m) {
  if (setting.error_feedback != ErrorFeedback::none) {
    return 1.0;
  }
  return static_cast<float>(static_cast<double>(kParts[m].shape.num_elements()) /
                            static_cast<double>(kept_elements(setting, kParts[m].shape)));
}

// What all ranks' messages of these values together decode to.
std::vector<double> decoded_sum(const std::vector<Message>& values,
                                const Message& kept,
                                const CodecSetting& setting,
                                std::size_t m) {
  std::vector<double> result(kParts[m].shape.num_elements(), 0.0);
  for (const Message& message : values) {
    const std::vector<double> addends = message.values(m);
    std::transform(
        result.begin(), result.end(), addends.begin(), result.begin(), std::plus<double>());
  }
  const std::vector<double> is_kept = kept.values(m);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto sum = static_cast<float>(result[i]);
    const float sent = setting.values == DType::f32 ? sum : static_cast<float>(BFloat16(sum));
    result[i] = is_kept[i] * static_cast<double>(sent * static_cast<float>(scale_of(setting, m)));
  }
  return result;
}

}  // namespace

TEST_CASE("random_k's frame and sum have the bytes of their formulas") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Rank rank(setting_of(dtype, ErrorFeedback::none));
    REQUIRE(rank.codec->frame_bytes() == 16 + 16 + (25 + 1 + 3840) * size_of(dtype));
    REQUIRE(rank.codec->frame_bytes() == frame_bytes(rank.setting, kParts));
    REQUIRE(rank.codec->sums() == 1);
    Message values(kParts);
    rank.codec->begin_sum(rank.stream, values.matrices(), {}, kKey);
    const Tensor addend = rank.codec->addend(1);
    REQUIRE(addend.dtype() == dtype);
    REQUIRE(addend.num_elements() == sum_rounds(rank.setting, kParts).front().elements);
  }
}

TEST_CASE("a random_k message arrives as a sample of each matrix") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ErrorFeedback feedback : {ErrorFeedback::none, ErrorFeedback::immediate}) {
      for (const double ratio : {1e-6, 0.05, 0.5, 1.0}) {
        Rank rank(setting_of(dtype, feedback, ratio));
        Message values = Message::whole_numbers(kParts, 1);
        const Message before = values;
        const Message kept = kept_of(rank.setting);
        Message out(kParts, 7.0);
        rank.encode(values);
        rank.decode(out);
        REQUIRE(values == before);
        REQUIRE(out.sentinels_intact());
        for (std::size_t m = 0; m < kParts.size(); ++m) {
          REQUIRE(num_nonzero(kept, m) == kept_elements(rank.setting, kParts[m].shape));
          std::vector<double> expected = kept.values(m);
          const std::vector<double> given = values.values(m);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            expected[i] *= static_cast<float>(given[i] * scale_of(rank.setting, m));
          }
          REQUIRE(out.values(m) == expected);
        }
      }
    }
  }
}

TEST_CASE("random_k draws anew for every step, micro-batch, matrix and seed") {
  const CodecSetting setting = setting_of(DType::f32, ErrorFeedback::immediate);
  const Message kept = kept_of(setting);
  REQUIRE(kept == kept_of(setting));
  REQUIRE_FALSE(kept == kept_of(setting, {.seed = kSeed, .step = 6, .micro_batch = 2}));
  REQUIRE_FALSE(kept == kept_of(setting, {.seed = kSeed, .step = 5, .micro_batch = 3}));
  REQUIRE_FALSE(kept ==
                kept_of(setting, {.seed = kSeed, .step = 5 + (1ULL << 32U), .micro_batch = 2}));
  const std::vector<CodecPart> twins = {{.name = "a", .shape = {100, 100}},
                                        {.name = "b", .shape = {100, 100}}};
  Message ones(twins, 1.0);
  Message out(twins);
  Rank rank(setting, twins);
  rank.encode(ones);
  rank.decode(out);
  REQUIRE(out.values(0) != out.values(1));
  const std::unique_ptr<Codec> other = make_codec(setting, twins, kSeed + 1, test_device());
  Message otherwise(twins);
  other->decode(rank.stream, rank.frame, otherwise.matrices(), false);
  REQUIRE_FALSE(out == otherwise);
}

TEST_CASE("random_k's sums over three ranks are exact") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ErrorFeedback feedback : {ErrorFeedback::none, ErrorFeedback::lazy}) {
      const CodecSetting setting = setting_of(dtype, feedback);
      const Message kept = kept_of(setting);
      std::vector<std::unique_ptr<Rank>> ranks;
      std::vector<Message> values;
      std::vector<Tensor> addends;
      ranks.reserve(3);
      values.reserve(3);
      addends.reserve(3);
      for (std::uint64_t r = 0; r < 3; ++r) {
        ranks.push_back(std::make_unique<Rank>(setting));
        values.push_back(Message::whole_numbers(kParts, 100 * r + 1));
        ranks[r]->codec->begin_sum(ranks[r]->stream, values[r].matrices(), {}, kKey);
        addends.push_back(ranks[r]->codec->addend(1));
      }
      std::vector<std::vector<double>> expected;
      expected.reserve(kParts.size());
      for (std::size_t m = 0; m < kParts.size(); ++m) {
        expected.push_back(decoded_sum(values, kept, setting, m));
      }
      sum_over_ranks(addends);
      for (std::size_t r = 0; r < 3; ++r) {  // the output may stand where the values were
        ranks[r]->codec->finish_sum(ranks[r]->stream, values[r].matrices(), {}, 3);
        for (std::size_t m = 0; m < kParts.size(); ++m) {
          REQUIRE(values[r].values(m) == expected[m]);
        }
        REQUIRE(values[r].sentinels_intact());
      }
    }
  }
}

TEST_CASE("with random_k and error feedback nothing is lost, as frames or as sums") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool as_sum : {false, true}) {
      Rank rank(setting_of(dtype, ErrorFeedback::immediate));
      Message residual(kParts);
      Message arrived(kParts);
      Message given(kParts);
      for (std::uint64_t step = 1; step <= 5; ++step) {
        Message values = Message::whole_numbers(kParts, step);
        const MessageKey key{.seed = kSeed, .step = step};
        Message out(kParts);
        Message owed = residual;
        for (std::size_t m = 0; m < kParts.size(); ++m) {
          given.tensor(m).set(sum_of(given, values, m));
          owed.tensor(m).set(sum_of(residual, values, m));
        }
        if (as_sum) {
          rank.codec->begin_sum(rank.stream, values.matrices(), residual.matrices(), key);
          REQUIRE(residual == owed);
          rank.codec->finish_sum(rank.stream, out.matrices(), residual.matrices(), 1);
        } else {
          rank.encode(values, residual.matrices(), key);
          REQUIRE(residual == owed);
          rank.codec->settle(rank.stream, rank.frame, residual.matrices());
          rank.decode(out);
        }
        for (std::size_t m = 0; m < kParts.size(); ++m) {
          arrived.tensor(m).set(sum_of(arrived, out, m));
          REQUIRE(sum_of(arrived, residual, m) == given.values(m));
        }
      }
      REQUIRE(residual.sentinels_intact());
    }
  }
}

TEST_CASE("random_k's rounding to bf16 stays in the residual") {
  Rank rank(setting_of(DType::bf16, ErrorFeedback::immediate, 1.0));
  Message values = Message::normal_numbers(kParts, 3);
  Message residual(kParts);
  Message out(kParts);
  rank.codec->begin_sum(rank.stream, values.matrices(), residual.matrices(), kKey);
  rank.codec->finish_sum(rank.stream, out.matrices(), residual.matrices(), 1);
  REQUIRE(num_nonzero(residual, 2) > 70000);
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    REQUIRE(sum_of(out, residual, m) == values.values(m));
  }
}

TEST_CASE("without error feedback random_k is right on average") {
  // An element arrives as v n / k with probability k / n, else as 0: over N messages the mean of
  // all arrivals deviates from v by v sqrt((n / k - 1) / N). 5 of these deviations for the sum of
  // a matrix's squares of deviations, whose expectation is elements x that.
  constexpr int kMessages = 400;
  const std::vector<CodecPart> parts = {{.name = "x", .shape = {40, 25}}};
  Rank rank(setting_of(DType::f32, ErrorFeedback::none, 0.1), parts);
  Message values(parts, 1.0);
  std::vector<double> mean(1000, 0.0);
  for (std::uint64_t step = 1; step <= kMessages; ++step) {
    Message out(parts);
    rank.encode(values, {}, {.seed = kSeed, .step = step});
    rank.decode(out);
    const std::vector<double> arrived = out.values(0);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += arrived[i] / kMessages;
    }
  }
  const double variance = (10.0 - 1.0) / kMessages;
  double squares = 0.0;
  double worst = 0.0;
  for (const double value : mean) {
    squares += (value - 1.0) * (value - 1.0);
    worst = std::max(worst, std::abs(value - 1.0));
  }
  // The mean square of 1000 nearly normal deviations lies within 5 x sqrt(2 / 1000), the largest
  // within 5 standard deviations.
  REQUIRE(std::abs(squares / 1000.0 / variance - 1.0) < 5.0 * std::sqrt(2.0 / 1000.0));
  REQUIRE(worst < 5.0 * std::sqrt(variance));
}

// codec_gradient_test.cpp has the scale from finite differences.
TEST_CASE("random_k masks a gradient to what its message kept of the first matrix, as scaled") {
  for (const ErrorFeedback feedback : {ErrorFeedback::none, ErrorFeedback::immediate}) {
    Rank rank(setting_of(DType::bf16, feedback));
    Message values = Message::normal_numbers(kParts, 1);
    rank.encode(values);
    REQUIRE(rank.codec->gradient() == CodecGradient::masked);
    Message gradient(kParts, 3.0);
    rank.codec->mask(rank.stream, rank.frame, gradient.tensor(0));
    std::vector<double> expected = kept_of(rank.setting).values(0);
    for (double& value : expected) {
      value *= static_cast<float>(3.0 * scale_of(rank.setting, 0));
    }
    REQUIRE(gradient.values(0) == expected);
  }
}

TEST_CASE("Inf and NaN that random_k leaves out reach the receiver and leave the residual") {
  const CodecSetting setting = setting_of(DType::f32, ErrorFeedback::immediate);
  const std::vector<double> kept = kept_of(setting).values(2);
  const auto left_out =
      static_cast<std::size_t>(std::find(kept.begin(), kept.end(), 0.0) - kept.begin());
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
    Rank rank(setting);
    Message values = Message::normal_numbers(kParts, 1);
    Message residual(kParts);
    values.tensor(2).view().data<float>()[left_out] = bad;
    rank.encode(values, residual.matrices());
    rank.codec->settle(rank.stream, rank.frame, residual.matrices());
    Message out(kParts);
    rank.decode(out);
    const auto is_finite = [](double value) { return std::isfinite(value); };
    const std::vector<double> received = out.values(2);
    REQUIRE_FALSE(std::ranges::all_of(received, is_finite));
    REQUIRE(std::ranges::all_of(out.values(0), is_finite));
    REQUIRE(std::ranges::all_of(residual.values(2), is_finite));

    Message summed(kParts);
    Message owed(kParts);
    rank.codec->begin_sum(rank.stream, values.matrices(), owed.matrices(), kKey);
    rank.codec->finish_sum(rank.stream, summed.matrices(), owed.matrices(), 1);
    rank.stream.synchronize();
    REQUIRE_FALSE(std::ranges::all_of(summed.values(2), is_finite));
    REQUIRE(std::ranges::all_of(owed.values(2), is_finite));
  }
}

TEST_CASE("a damaged random_k frame is refused before anything is written") {
  Rank rank(setting_of(DType::f32, ErrorFeedback::none));
  Message values = Message::normal_numbers(kParts, 1);
  rank.encode(values);
  const auto require_refused = [&](const Tensor& frame, const char* message) {
    Message out(kParts, 7.0);
    REQUIRE_THROWS_AS(decode_now(*rank.codec, rank.stream, frame, out.matrices(), true), CommError);
    REQUIRE_THROWS_WITH(decode_now(*rank.codec, rank.stream, frame, out.matrices(), false),
                        Catch::Contains(message));
    REQUIRE((test_device() == Device::cuda || out == Message(kParts, 7.0)));
  };
  const auto bytes = static_cast<std::int64_t>(rank.codec->frame_bytes());
  require_refused(rank.frame.view().rows(0, bytes - 4), "where random_k of 15496 are due");
  for (const std::size_t word : {0, 1, 2, 3}) {
    GuardedTensor damaged = rank.frame;
    static_cast<std::uint32_t*>(damaged.view().raw())[word] += 256;  // the lowest byte is a version
    require_refused(damaged, "a compressed message begins with");
  }
}

TEST_CASE("a random_k frame has the same bytes for any number of threads") {
  std::vector<std::byte> expected;
  for (const int num_threads : {1, 2, 3}) {
    Rank rank(setting_of(DType::bf16, ErrorFeedback::none), kParts, num_threads);
    Message values = Message::normal_numbers(kParts, 1);
    rank.encode(values);
    expected = num_threads == 1 ? rank.frame.bytes() : expected;
    REQUIRE(rank.frame.bytes() == expected);
  }
}

TEST_CASE("on the rehearsal device random_k's messages pass") {
  const CodecSetting setting = setting_of(DType::f32, ErrorFeedback::immediate);
  require_rehearsed(*make_codec(setting, kParts, kSeed, test_device()), kKey);
}

}  // namespace slackline::testing
