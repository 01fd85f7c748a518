#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/tensor/shape.h"
#include "core/tensor/stream.h"
#include "tools/bench/device_timer.h"

// The parts of cuda_bench, each of which times some ops and prints a row for each.
namespace slackline {

struct CudaBenchOptions {
  std::string only{};
  int pairs = 9;
  std::int64_t tokens = 16384;
  std::int64_t hidden = 768;
  std::int64_t vocab = 50257;
  std::int64_t gradients = 124439808;  // of GPT-2 124M
};

// What the parts share: the stream they run on, and memory that is larger than the last cache.
struct CudaBench {
  // Tokens of a sequence in the embedding's and the attention's rows.
  static constexpr std::int64_t kSequence = 1024;

  explicit CudaBench(const CudaBenchOptions& chosen)
      : options(chosen),
        ring(ring_bytes(chosen)),
        stream({.device = Device::cuda, .workspace_bytes = std::size_t{1} << 30U}),
        timer({.only = chosen.only, .times = chosen.pairs}, ring) {}

  // Logits that are made at a time: (tokens of a chunk, vocabulary), and how far apart their rows
  // lie.
  [[nodiscard]] Shape classifier_chunk() const;
  [[nodiscard]] std::int64_t classifier_row() const;

  // Such logits, or gradients of them.
  [[nodiscard]] Tensor take_logits(DType dtype);

  // Larger than the last cache, and than all that one op takes of it.
  [[nodiscard]] static std::size_t ring_bytes(const CudaBenchOptions& options);

  CudaBenchOptions options;
  DeviceRing ring;
  Stream stream;
  DeviceTimer timer;
};

// Ops that wait for memory, against copies of as many bytes.
void time_memory_ops(CudaBench& bench);

// Products and attention, against the card's dense peak and what cuBLASLt suggests.
void time_products(CudaBench& bench);

// What a bf16 product of edge x edge matrices reaches, in FLOP/s.
[[nodiscard]] double product_ceiling(CudaBench& bench, std::int64_t edge);

// Codecs on the matrices of a layer and on all gradients, against copies.
void time_codecs(CudaBench& bench);

}  // namespace slackline
