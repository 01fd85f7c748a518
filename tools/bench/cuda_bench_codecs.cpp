#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/cuda_bench.h"

namespace slackline {

namespace {

// The matrices of a layer are coded with a residual. The floor: values and residual read, the
// residual written.
void codecs(CudaBench& bench) {
  const std::int64_t C = bench.options.hidden;
  const std::vector<CodecPart> parts = {{.name = "qkv", .shape = {C, 3 * C}},
                                        {.name = "projection", .shape = {C, C}},
                                        {.name = "up", .shape = {C, 4 * C}},
                                        {.name = "down", .shape = {4 * C, C}}};
  const std::vector<std::pair<std::string, CodecSetting>> settings = {
      {"low rank 4", {.kind = CodecKind::low_rank, .rank = 4}},
      {"top-k 1 %", {.kind = CodecKind::top_k, .ratio = 0.01}},
      {"random-k 1 %", {.kind = CodecKind::random_k, .ratio = 0.01}},
      {"quantize 8 by row", {.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::token}},
      {"quantize 2 by both", {.kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::both}},
      {"cast", {.kind = CodecKind::cast}}};
  for (const auto& [name, setting] : settings) {
    const auto codec = make_codec(setting, parts, 1, Device::cuda);
    Stream stream(
        {.device = Device::cuda, .workspace_bytes = codec->workspace_bytes({1, Device::cuda})});
    double elements = 0.0;
    const auto matrices = [&] {
      Codec::Matrices taken;
      for (const CodecPart& part : parts) {
        taken.push_back(bench.ring.take(DType::f32, {part.shape.rows, part.shape.columns}));
      }
      return taken;
    };
    for (const CodecPart& part : parts) {
      elements += static_cast<double>(part.shape.num_elements());
    }
    const Buffer frame("frame", codec->frame_bytes(), Backing::cuda);
    const Tensor sent = frame.view(DType::u8, {static_cast<std::int64_t>(codec->frame_bytes())});
    std::uint64_t step = 0;
    bench.timer.against_copy(stream, "encode " + name, 12 * elements, [&, codec = codec.get()] {
      codec->encode(stream, matrices(), matrices(), {.seed = 1, .step = ++step}, sent);
    });
    bench.timer.against_copy(stream, "decode " + name, 4 * elements, [&, codec = codec.get()] {
      codec->decode(stream, sent, matrices(), false);
    });
  }
}

// One message, as large as a model. The floor is that of the codecs above.
void top_k_of_all_gradients(CudaBench& bench) {
  const MatrixShape shape{.rows = 1, .columns = bench.options.gradients};
  const auto codec = make_codec({.kind = CodecKind::top_k, .ratio = 0.01},
                                {{.name = "all gradients", .shape = shape}},
                                1,
                                Device::cuda);
  Stream stream(
      {.device = Device::cuda, .workspace_bytes = codec->workspace_bytes({1, Device::cuda})});
  const auto take = [&] {
    return Codec::Matrices{bench.ring.take(DType::f32, {shape.rows, shape.columns})};
  };
  const Buffer frame("frame", codec->frame_bytes(), Backing::cuda);
  const Tensor sent = frame.view(DType::u8, {static_cast<std::int64_t>(codec->frame_bytes())});
  std::uint64_t step = 0;
  const double bytes = 12.0 * static_cast<double>(shape.num_elements());
  bench.timer.against_copy(stream, "encode top-k 1 % of all gradients", bytes, [&] {
    codec->encode(stream, take(), take(), {.seed = 1, .step = ++step}, sent);
  });
}

}  // namespace

void time_codecs(CudaBench& bench) {
  codecs(bench);
  top_k_of_all_gradients(bench);
}

}  // namespace slackline
