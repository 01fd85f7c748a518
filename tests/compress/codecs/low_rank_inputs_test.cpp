// The low-rank codec given zeros, matrices of lower rank, Inf and NaN, damaged frames; and that
// neither threads nor the rehearsal device change what it does.

#include <cmath>
#include <limits>

#include "core/error.h"
#include "tests/compress/low_rank_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using reference::product;

const std::vector<CodecPart> kOne = {{.name = "x", .shape = {40, 30}}};

// A message of one matrix of this rank.
Message of_rank(std::size_t rank, std::uint64_t seed) {
  const Matrix left(40, rank, random_values(40 * rank, {.seed = seed}));
  const Matrix right(rank, 30, random_values(30 * rank, {.seed = seed + 1}));
  Message message(kOne);
  message.tensor(0).set(product(left, right).values);
  return message;
}

bool all_finite(const Message& message, std::size_t matrix) {
  const std::vector<double> values = message.values(matrix);
  return std::all_of(
      values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

bool none_finite(const Message& message, std::size_t matrix) {
  const std::vector<double> values = message.values(matrix);
  return std::none_of(
      values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

TEST_CASE("low_rank sends zeros as zeros, and what follows them whole") {
  for (const Orthogonalization method :
       {Orthogonalization::blocked, Orthogonalization::gram_schmidt}) {
    LowRankEnd end(low_rank(4, DType::f32, method), kOne);
    Message out(kOne, 7.0);
    Message zeros(kOne);
    for (int i = 0; i < 3; ++i) {
      end.send(zeros, end.residual.matrices());
      end.receive(out);
      CHECK(out == zeros);
      CHECK(end.residual == zeros);
    }
    Message values = of_rank(4, 3);
    end.send(values, {});
    end.receive(out);
    // Rounding times the condition of a random right factor.
    CHECK(relative_distance(matrix_of(out, kOne, 0), matrix_of(values, kOne, 0)) < 1e-4);
  }
}

TEST_CASE("directions that low_rank messages lacked for a while come back") {
  // A message of rank 4 is off by rounding times the condition of the right factor it starts
  // from, whose lost rows are drawn anew or left by rounding; the one after it starts from a good
  // one.
  for (const Orthogonalization method :
       {Orthogonalization::blocked, Orthogonalization::gram_schmidt}) {
    for (const std::size_t lower : {1, 2, 3}) {
      const auto ends = low_rank_ends(2, low_rank(4, DType::f32, method), kOne);
      for (std::uint64_t i = 0; i < 10; ++i) {
        std::vector<Message> values = {of_rank(lower, 3), of_rank(lower, 3)};
        sum_message(ends, values, Feedback::off);
        CHECK(relative_distance(matrix_of(values[0], kOne, 0),
                                reference::combined(matrix_of(of_rank(lower, 3), kOne, 0),
                                                    1.0,
                                                    matrix_of(of_rank(lower, 3), kOne, 0))) < 1e-4);
      }
      double distance = 1.0;
      for (int i = 0; i < 2; ++i) {
        std::vector<Message> values = {of_rank(4, 9), of_rank(4, 9)};
        const Matrix sum =
            reference::combined(matrix_of(values[0], kOne, 0), 1.0, matrix_of(values[1], kOne, 0));
        sum_message(ends, values, Feedback::off);
        CHECK(values[0] == values[1]);
        distance = relative_distance(matrix_of(values[0], kOne, 0), sum);
      }
      INFO("after matrices of rank " << lower);
      CHECK(distance < 1e-5);
    }
  }
}

TEST_CASE("with error feedback low_rank delivers a constant matrix on average") {
  // Directions take turns: what has arrived after K messages is K times the matrix, less what is
  // still owed.
  constexpr int kMessages = 40;
  LowRankEnd end(low_rank(2), kOne);
  Matrix arrived(40, 30);
  Message values = Message::normal_numbers(kOne, 1);
  Message out(kOne);
  for (int i = 0; i < kMessages; ++i) {
    end.send(values, end.residual.matrices());
    end.receive(out);
    arrived = reference::combined(arrived, 1.0 / kMessages, matrix_of(out, kOne, 0));
  }
  const Matrix mean =
      reference::combined(arrived, 1.0 / kMessages, matrix_of(end.residual, kOne, 0));
  CHECK(relative_distance(mean, matrix_of(values, kOne, 0)) < 1e-5);
  // 30 directions, two a message: each waits for some 15 messages of 40.
  CHECK(relative_distance(arrived, matrix_of(values, kOne, 0)) < 15.0 / kMessages);
}

TEST_CASE("an Inf or NaN makes its own matrix of a low_rank message neither finite nor right") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      LowRankEnd end(low_rank(3, dtype), kParts);
      Message values = Message::normal_numbers(kParts, 1);
      values.tensor(0).view().data<float>()[77] = bad;
      Message out(kParts);
      end.send(values, end.residual.matrices());
      end.receive(out);
      CHECK(none_finite(out, 0));
      CHECK(all_finite(out, 1));
      CHECK(all_finite(out, 2));
      const auto ends = low_rank_ends(2, low_rank(3, dtype), kParts);
      std::vector<Message> both = {Message::normal_numbers(kParts, 5), values};
      sum_message(ends, both);
      for (const Message& received : both) {
        CHECK(none_finite(received, 0));
        CHECK(all_finite(received, 2));
      }
    }
  }
}

TEST_CASE("a damaged low_rank frame is refused before anything is written") {
  LowRankEnd end(low_rank(3), kParts);
  Message values = Message::normal_numbers(kParts, 1);
  end.send(values, {});
  const auto require_refused = [&](const Tensor& frame, const char* message) {
    Message out(kParts, 7.0);
    REQUIRE_THROWS_AS(decode_now(*end.codec, end.stream, frame, out.matrices(), true), CommError);
    REQUIRE_THROWS_WITH(decode_now(*end.codec, end.stream, frame, out.matrices(), false),
                        Catch::Contains(message));
    REQUIRE((test_device() == Device::cuda || out == Message(kParts, 7.0)));
  };
  const auto bytes = static_cast<std::int64_t>(end.codec->frame_bytes());
  require_refused(end.frame.view().rows(0, bytes - 4), "where low_rank of 7296 are due");
  for (const std::size_t word : {0, 1, 2, 3}) {
    GuardedTensor damaged = end.frame;
    static_cast<std::uint32_t*>(damaged.view().raw())[word] += 256;  // the lowest byte is a version
    require_refused(damaged, "a compressed message begins with");
  }
  LowRankEnd other(low_rank(4), kParts);
  Message out(kParts);
  CHECK_THROWS_AS(decode_now(*other.codec, other.stream, end.frame, out.matrices(), false),
                  CommError);
}

TEST_CASE("a low_rank receiver keeps no state: any codec of the setting decodes a frame") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    LowRankEnd sender(low_rank(3, dtype), kParts);
    LowRankEnd receiver(low_rank(3, dtype), kParts, 2, 99);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      Message values = Message::normal_numbers(kParts, 10 * step);
      Message expected(kParts);
      Message out(kParts, 7.0);
      sender.send(values, {});
      sender.receive(expected);
      sender.stream.synchronize();
      receiver.codec->decode(receiver.stream, sender.frame, out.matrices(), false);
      receiver.stream.synchronize();
      CHECK(out == expected);
    }
  }
}

TEST_CASE("a low_rank message can be added to what is there") {
  LowRankEnd end(low_rank(3), kParts);
  Message values = Message::normal_numbers(kParts, 1);
  Message out(kParts);
  Message sums(kParts, 2.0);
  end.send(values, {});
  end.receive(out);
  end.codec->decode(end.stream, end.frame, sums.matrices(), true);
  for (std::size_t m = 0; m < kParts.size(); ++m) {
    std::vector<double> expected = out.values(m);
    for (double& value : expected) {
      value = static_cast<float>(value + 2.0);
    }
    CHECK(sums.values(m) == expected);
  }
}

TEST_CASE("low_rank has the same bits for any number of threads") {
  std::vector<Message> expected;
  for (const int num_threads : {1, 2, 3}) {
    LowRankEnd end(low_rank(20, DType::bf16), kParts, num_threads);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      Message values = Message::normal_numbers(kParts, 10 * step);
      Message out(kParts);
      end.send(values, end.residual.matrices());
      end.receive(out);
      if (num_threads == 1) {
        expected.push_back(out);
        expected.push_back(end.residual);
      }
      INFO(num_threads << " threads");
      CHECK(out == expected[2 * step - 2]);
      CHECK(end.residual == expected[2 * step - 1]);
    }
  }
}

TEST_CASE("on the rehearsal device low_rank messages pass, and nothing is written") {
  require_rehearsed(*make_codec(low_rank(3, DType::bf16), kParts, 1, test_device()));
}

}  // namespace slackline::testing
