#include "compress/codec_measurement.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "compress/codec_traits.h"
#include "core/rng.h"
#include "core/tensor/buffer.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

constexpr std::int64_t kMostElements = 1 << 20;
// A call takes some tenths of a millisecond, or some milliseconds more where a busy thread had the
// core when it came. Those are no loss, for that thread computes meanwhile: the lower quartile of
// seven calls counts. Long calls are run as often as fits into the time, three times at least. One
// more before is not timed.
constexpr std::size_t kLeastRuns = 3;
constexpr std::size_t kMostRuns = 7;
constexpr double kEnoughSeconds = 0.05;

double lower_quartile_of(std::vector<double> values) {
  const auto quartile = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 4);
  std::ranges::nth_element(values, quartile);
  return *quartile;
}

MatrixShape measured_shape(const std::vector<std::int64_t>& shape, std::int64_t columns) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    elements *= size;
  }
  MatrixShape matrix{.rows = shape.front(), .columns = shape.back()};
  if (shape.size() == 1) {
    matrix = {.rows = std::max<std::int64_t>(1, elements / columns), .columns = columns};
  }
  const std::int64_t most_rows = std::max<std::int64_t>(1, kMostElements / matrix.columns);
  matrix.rows = std::min(matrix.rows, most_rows);
  return matrix;
}

// Keeps threads busy with products, as the passes of a rank do while its codecs work.
class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    threads_.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([](const std::stop_token& stop) {
        std::vector<float> values(kBusyElements, 1.0F);
        while (!stop.stop_requested()) {
          for (float& value : values) {
            value = 0.5F * value + 0.5F;
          }
        }
      });
    }
  }

 private:
  static constexpr std::size_t kBusyElements = std::size_t{1} << 18U;  // beyond the first caches

  std::vector<std::jthread> threads_;
};

// One codec with what it works on.
class Measured {
 public:
  Measured(const CandidateMessage& message,
           const MatrixShape& matrix,
           std::span<const float> normal_values,
           Device device)
      : message_(message),
        shape_{matrix.rows, matrix.columns},
        values_(make_buffer("measured", DType::f32, shape_, backing_of(device))),
        residual_(make_buffer("residual", DType::f32, shape_, backing_of(device))),
        moments_(needs_moments(message.codec)
                     ? make_buffer("moments", DType::f32, shape_, backing_of(device))
                     : Buffer()),
        codec_(make_codec(message.codec, {part_of(matrix)}, kSeed, device)),
        frame_("frame", codec_->frame_bytes(), backing_of(device)) {
    residual_.fill_zero();  // NaN there would end an orthonormalization at once
    if (moments_.bytes() > 0) {
      moments_.fill_zero();
    }
    matrix_ = {values_.view(DType::f32, shape_)};
    if (message.codec.error_feedback != ErrorFeedback::none) {
      owed_ = {residual_.view(DType::f32, shape_)};
    }
    const HostTensor host(matrix_.front(), HostTensor::Contents::undefined);
    const std::span<float> values = host.tensor().span<float>();
    std::ranges::copy(normal_values.first(values.size()), values.begin());
    host.write_back();
  }

  [[nodiscard]] const Codec& codec() const { return *codec_; }

  [[nodiscard]] CodecTimes run(StreamView stream) {
    CodecTimes times{.setting = message_.codec,
                     .shape = {shape_[0], shape_[1]},
                     .sent_bytes = codec_->frame_bytes()};
    std::vector<double> encode;
    std::vector<double> decode;
    double seconds = 0.0;
    for (std::size_t run = 0; run <= kLeastRuns || (run <= kMostRuns && seconds < kEnoughSeconds);
         ++run) {
      CodecTimes timed;
      const MessageKey key{.seed = kSeed, .step = run};
      codec_->sums() > 0 && message_.is_added ? add_up(stream, key, timed)
                                              : pass(stream, key, timed);
      if (run > 0) {
        encode.push_back(timed.encode.seconds);
        decode.push_back(timed.decode.seconds);
        seconds += timed.encode.seconds + timed.decode.seconds;
      }
    }
    times.encode = {.seconds = lower_quartile_of(encode), .calls = 1};
    times.decode = {.seconds = lower_quartile_of(decode), .calls = 1};
    return times;
  }

 private:
  static constexpr std::uint64_t kSeed = 1;

  // Its moments are zeros, which take as long as others.
  [[nodiscard]] CodecPart part_of(const MatrixShape& shape) const {
    return {.name = "measured",
            .shape = shape,
            .moments = moments_.bytes() == 0 ? Tensor() : moments_.view(DType::f32, shape_)};
  }

  void add_up(StreamView stream, const MessageKey& key, CodecTimes& times) {
    {
      const TimedCall timed(times.encode);
      codec_->begin_sum(stream, matrix_, owed_, key);
      stream.synchronize();
    }
    for (int round = 1; round < codec_->sums(); ++round) {
      const TimedCall timed(times.encode);
      codec_->next_sum(stream, matrix_, owed_);
      stream.synchronize();
    }
    const TimedCall timed(times.decode);
    codec_->finish_sum(stream, matrix_, owed_, 1);
    stream.synchronize();
  }

  void pass(StreamView stream, const MessageKey& key, CodecTimes& times) {
    const Tensor frame = frame_.row(DType::u8);
    {
      const TimedCall timed(times.encode);
      codec_->encode(stream, matrix_, owed_, key, frame);
      stream.synchronize();
    }
    const TimedCall timed(times.decode);
    codec_->decode(stream, frame, matrix_, false);
    stream.synchronize();
  }

  CandidateMessage message_;
  Shape shape_;
  Buffer values_;
  Buffer residual_;
  Buffer moments_;
  std::unique_ptr<Codec> codec_;
  Buffer frame_;
  Codec::Matrices matrix_{};
  Codec::Matrices owed_{};  // empty without error feedback
};

}  // namespace

std::vector<CodecTimes> measure_codecs(const std::vector<CandidateMessage>& messages,
                                       std::int64_t columns,
                                       const Workers& workers) {
  std::int64_t most_elements = 0;
  for (const CandidateMessage& message : messages) {
    const MatrixShape shape = measured_shape(message.shape, columns);
    most_elements = std::max(most_elements, shape.rows * shape.columns);
  }
  std::vector<float> values(static_cast<std::size_t>(most_elements));
  draw_normal(values, {});
  const BusyThreads passes(workers.device == Device::cpu ? workers.num_threads : 0);
  std::vector<CodecTimes> times;
  times.reserve(messages.size());
  for (const CandidateMessage& message : messages) {
    const MatrixShape shape = measured_shape(message.shape, columns);
    Measured measured(message, shape, values, workers.device);
    Stream stream(workers, measured.codec().workspace_bytes(workers), "codec");
    times.push_back(measured.run(stream));
  }
  return times;
}

}  // namespace slackline
