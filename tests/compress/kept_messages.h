#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "core/rehearsal_clock.h"
#include "core/tensor/host_tensor.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/test_device.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

// Three matrices, of which the first keep an odd number of elements.
inline const std::vector<CodecPart> kParts = {{.name = "h.0.attn.qkv.weight", .shape = {33, 15}},
                                              {.name = "h.0.mlp.up.weight", .shape = {1, 7}},
                                              {.name = "wte", .shape = {300, 256}}};

// A list of matrices that owns its memory.
class Message {
 public:
  explicit Message(const std::vector<CodecPart>& parts, double value = 0.0) {
    tensors_.reserve(parts.size());
    for (const CodecPart& part : parts) {
      tensors_.emplace_back(DType::f32, Shape{part.shape.rows, part.shape.columns});
      tensors_.back().fill(value);
    }
  }

  // Whole numbers up to 127 in magnitude, which bf16 holds, and so are sums of a few exact in f32.
  static Message whole_numbers(const std::vector<CodecPart>& parts, std::uint64_t seed) {
    Message message(parts);
    for (GuardedTensor& tensor : message.tensors_) {
      std::vector<double> values = random_values(tensor.values().size(), {.seed = seed++});
      for (double& value : values) {
        value = std::round(std::clamp(30.0 * value, -127.0, 127.0));
      }
      tensor.set(values);
    }
    return message;
  }

  static Message normal_numbers(const std::vector<CodecPart>& parts,
                                std::uint64_t seed,
                                double deviation = 1.0) {
    Message message(parts);
    for (GuardedTensor& tensor : message.tensors_) {
      tensor.set(random_values(tensor.values().size(), {.seed = seed++, .deviation = deviation}));
    }
    return message;
  }

  [[nodiscard]] Codec::Matrices matrices() {
    Codec::Matrices result;
    result.reserve(tensors_.size());
    for (GuardedTensor& tensor : tensors_) {
      result.push_back(tensor.view());
    }
    return result;
  }

  [[nodiscard]] std::vector<double> values(std::size_t matrix) const {
    return tensors_[matrix].values();
  }

  // Returns the values of all matrices, one after the other.
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> all;
    for (const GuardedTensor& tensor : tensors_) {
      const std::vector<double> more = tensor.values();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  [[nodiscard]] GuardedTensor& tensor(std::size_t matrix) { return tensors_[matrix]; }

  [[nodiscard]] std::size_t size() const { return tensors_.size(); }

  [[nodiscard]] bool sentinels_intact() const {
    bool intact = true;
    for (const GuardedTensor& tensor : tensors_) {
      intact = intact && tensor.sentinels_intact();
    }
    return intact;
  }

  // Element by element, as doubles: exact for f32.
  friend bool operator==(const Message& a, const Message& b) {
    bool equal = a.size() == b.size();
    for (std::size_t m = 0; equal && m < a.size(); ++m) {
      equal = a.tensors_[m].bytes() == b.tensors_[m].bytes();
    }
    return equal;
  }

 private:
  std::vector<GuardedTensor> tensors_;
};

// a + b per element and matrix.
[[nodiscard]] inline std::vector<double> sum_of(const Message& a,
                                                const Message& b,
                                                std::size_t matrix) {
  std::vector<double> sum = a.values(matrix);
  const std::vector<double> addends = b.values(matrix);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += addends[i];
  }
  return sum;
}

// Decodes and waits: on the CUDA device a damaged frame is refused by then.
inline void decode_now(const Codec& codec,
                       StreamView stream,
                       const Tensor& frame,
                       const Codec::Matrices& out,
                       bool accumulate) {
  codec.decode(stream, frame, out, accumulate);
  stream.synchronize();
}

[[nodiscard]] inline GuardedTensor empty_frame(const Codec& codec) {
  return {DType::u8, Shape{static_cast<std::int64_t>(codec.frame_bytes())}};
}

// The numbers of elements of `matrix` that are not zero.
[[nodiscard]] inline std::size_t num_nonzero(const Message& message, std::size_t matrix) {
  std::size_t count = 0;
  for (const double value : message.values(matrix)) {
    count += value != 0.0 ? 1 : 0;
  }
  return count;
}

// Adds up in rank order, in float, and rounds once, as communicators do.
inline void sum_over_ranks(const std::vector<Tensor>& addends) {
  wait_for_test_device();
  std::vector<HostTensor> hosts;
  hosts.reserve(addends.size());
  for (const Tensor& addend : addends) {
    hosts.emplace_back(addend);
  }
  for (std::size_t i = 0; i < addends[0].num_elements(); ++i) {
    float sum = 0.0F;
    for (const HostTensor& host : hosts) {
      const Tensor& addend = host.tensor();
      sum += addend.dtype() == DType::f32 ? addend.data<float>()[i]
                                          : static_cast<float>(addend.data<BFloat16>()[i]);
    }
    for (const HostTensor& host : hosts) {
      const Tensor& addend = host.tensor();
      if (addend.dtype() == DType::f32) {
        addend.data<float>()[i] = sum;
      } else {
        addend.data<BFloat16>()[i] = BFloat16(sum);
      }
    }
  }
  for (const HostTensor& host : hosts) {
    host.write_back();
  }
}

// Requires that messages of a codec of kParts pass on the rehearsal device, both ways where they
// add, and that nothing is written there.
inline void require_rehearsed(Codec& codec, const MessageKey& key = {}) {
  RehearsalClock clock;
  Stream::Options options = test_stream(1, codec.workspace_bytes(test_workers()));
  options.rehearsal = &clock;
  Stream stream(options);
  Message values = Message::normal_numbers(kParts, 1);
  Message residual(kParts);
  Message out(kParts, 7.0);
  GuardedTensor frame = empty_frame(codec);
  codec.encode(stream, values.matrices(), residual.matrices(), key, frame);
  codec.settle(stream, frame, residual.matrices());
  codec.decode(stream, frame, out.matrices(), false);
  if (codec.gradient() == CodecGradient::masked) {
    codec.mask(stream, frame, out.tensor(0));
  }
  if (codec.sums() > 0) {
    codec.begin_sum(stream, values.matrices(), residual.matrices(), key);
    for (int round = 1; round < codec.sums(); ++round) {
      codec.next_sum(stream, values.matrices(), residual.matrices());
    }
    codec.finish_sum(stream, out.matrices(), residual.matrices(), 2);
  }
  REQUIRE(out == Message(kParts, 7.0));
  REQUIRE(residual == Message(kParts));
}

}  // namespace slackline::testing
