#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "compress/codec.h"
#include "tests/compress/kept_messages.h"
#include "tests/reference/low_rank_oracle.h"

namespace slackline::testing {

using reference::Matrix;

[[nodiscard]] inline CodecSetting low_rank(int rank,
                                           DType factors = DType::f32,
                                           Orthogonalization method = Orthogonalization::blocked) {
  return {.kind = CodecKind::low_rank,
          .error_feedback = ErrorFeedback::lazy,
          .rank = rank,
          .factors = factors,
          .orthogonalization = method};
}

// One rank's end of low-rank messages, with its residual.
struct LowRankEnd {
  LowRankEnd(const CodecSetting& of,
             const std::vector<CodecPart>& parts,
             int num_threads = 2,
             std::uint64_t seed = 1234)
      : codec(make_codec(of, parts, seed, test_device())),
        stream(test_stream(num_threads, codec->workspace_bytes(test_workers(num_threads)))),
        frame(empty_frame(*codec)),
        residual(parts) {}

  // As a frame, to whom it may concern.
  void send(Message& values, const Codec::Matrices& owed) {
    codec->encode(stream, values.matrices(), owed, {}, frame);
    codec->settle(stream, frame, owed);
  }

  void receive(Message& out) { codec->decode(stream, frame, out.matrices(), false); }

  // The right factor that the next message starts from, (r, m).
  [[nodiscard]] Matrix right(std::size_t matrix) {
    const Tensor data = codec->state().at(matrix).data;
    stream.synchronize();
    const HostTensor host(data);
    const std::span<float> elements = host.tensor().span<float>();
    return {static_cast<std::size_t>(data.dim(0)),
            static_cast<std::size_t>(data.dim(1)),
            {elements.begin(), elements.end()}};
  }

  std::unique_ptr<Codec> codec;
  Stream stream;
  GuardedTensor frame;
  Message residual;
};

[[nodiscard]] inline std::vector<std::unique_ptr<LowRankEnd>> low_rank_ends(
    int count, const CodecSetting& setting, const std::vector<CodecPart>& parts) {
  std::vector<std::unique_ptr<LowRankEnd>> ends;
  ends.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    ends.push_back(std::make_unique<LowRankEnd>(setting, parts));
  }
  return ends;
}

enum class Feedback { off, on };

// One message as sums over all ends, in place of their values.
inline void sum_message(const std::vector<std::unique_ptr<LowRankEnd>>& ends,
                        std::vector<Message>& values,
                        Feedback feedback = Feedback::on) {
  const auto owed = [&](std::size_t r) {
    return feedback == Feedback::on ? ends[r]->residual.matrices() : Codec::Matrices{};
  };
  std::vector<Tensor> addends;
  addends.reserve(ends.size());
  for (std::size_t r = 0; r < ends.size(); ++r) {
    ends[r]->codec->begin_sum(ends[r]->stream, values[r].matrices(), owed(r), {});
    addends.push_back(ends[r]->codec->addend(1));
  }
  sum_over_ranks(addends);
  addends.clear();
  for (std::size_t r = 0; r < ends.size(); ++r) {
    ends[r]->codec->next_sum(ends[r]->stream, values[r].matrices(), owed(r));
    addends.push_back(ends[r]->codec->addend(2));
  }
  sum_over_ranks(addends);
  for (std::size_t r = 0; r < ends.size(); ++r) {
    ends[r]->codec->finish_sum(
        ends[r]->stream, values[r].matrices(), owed(r), static_cast<int>(ends.size()));
    REQUIRE(values[r].sentinels_intact());
    REQUIRE(ends[r]->residual.sentinels_intact());
    REQUIRE(ends[r]->stream.workspace().mark() == 0);
  }
}

[[nodiscard]] inline Matrix matrix_of(const Message& message,
                                      const std::vector<CodecPart>& parts,
                                      std::size_t matrix) {
  return {static_cast<std::size_t>(parts[matrix].shape.rows),
          static_cast<std::size_t>(parts[matrix].shape.columns),
          message.values(matrix)};
}

// |a - b| / |b|, Frobenius.
[[nodiscard]] inline double relative_distance(const Matrix& a, const Matrix& b) {
  return reference::norm(reference::combined(a, -1.0, b)) / reference::norm(b);
}

}  // namespace slackline::testing
