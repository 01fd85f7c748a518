// Times ops and codecs on the CUDA device against what bounds them: what waits for memory against a
// copy of as many bytes, measured right before each op of the same run, and products against the
// card's dense peak. Operands rotate through memory larger than the last cache. A share is the
// bound's time by the op's, median of `pairs` (lowest .. highest); bytes are what the op has to
// move, as its header says. Rows "chosen ..." compare products of GPT-2 124M and 1.5B with the best
// of up to 32 algorithms that cuBLASLt suggests for each; nothing where cuBLASLt is emulated.
//
//   cuda_bench [--only "layer norm"] [--pairs 9] [--tokens 16384] [--hidden 768] [--vocab 50257]
//              [--gradients 124439808]
//   cuda_bench --peak              the card's dense bf16 peak in FLOP/s, 0 if it is not known
//   cuda_bench --ceiling 8192      what a bf16 product of this edge reaches, in FLOP/s

#include "tools/bench/cuda_bench.h"

#include <algorithm>
#include <cstdint>

#include <fmt/core.h>

#include "core/cuda/cuda_device.h"
#include "core/kernels/loss/cross_entropy.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"
#include "tools/record/card_peak.h"

namespace slackline {

Shape CudaBench::classifier_chunk() const {
  return {cross_entropy_chunk_tokens(options.tokens, options.vocab, Device::cuda), options.vocab};
}

std::size_t CudaBench::ring_bytes(const CudaBenchOptions& options) {
  constexpr std::int64_t kFewTokens = 4096;
  constexpr std::size_t kTensorsOfAnOp = 4;
  const std::int64_t chunk =
      cross_entropy_chunk_tokens(options.tokens, options.vocab, Device::cuda);
  const auto logits = static_cast<std::size_t>(chunk * logits_row(options.vocab, Device::cuda));
  return std::max(std::size_t{options.tokens > kFewTokens ? 6U : 1U} << 30U,
                  kTensorsOfAnOp * logits * sizeof(float));
}

std::int64_t CudaBench::classifier_row() const {
  return logits_row(options.vocab, Device::cuda);
}

Tensor CudaBench::take_logits(DType dtype) {
  const Shape chunk = classifier_chunk();
  const Tensor rows = ring.take(dtype, {chunk[0], classifier_row()});
  return {rows.raw(), dtype, chunk, rows.device()};
}

namespace {

void time_all(CudaBench& bench) {
  fmt::print("{}\n", cuda::device_text());
  time_memory_ops(bench);
  time_products(bench);
  time_codecs(bench);
}

int run(int argc, char** argv) {
  CudaBenchOptions options;
  bool peak = false;
  std::int64_t ceiling = 0;
  CommandLine line("Times ops and codecs on the CUDA device against what bounds them",
                   "cuda_bench");
  Command app = line.root();
  app.option("--only", &options.only, "Only ops whose name contains this");
  app.option("--pairs", &options.pairs, "Timed pairs of bound and op", {.limit = Limit::positive});
  app.option("--tokens", &options.tokens, "Rows of a micro-batch", {.limit = Limit::positive});
  app.option("--hidden",
             &options.hidden,
             "Width of the model, a multiple of 64",
             {.limit = Limit::positive});
  app.option("--vocab", &options.vocab, "Tokens of the vocabulary", {.limit = Limit::positive});
  app.option("--gradients",
             &options.gradients,
             "Elements of the message of all gradients",
             {.limit = Limit::positive});
  app.flag("--peak", &peak, "Print the card's dense bf16 peak, 0 if unknown, and end");
  app.option("--ceiling",
             &ceiling,
             "Print what a bf16 product of this edge reaches, in FLOP/s, and end",
             {.limit = Limit::positive});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  cuda::use_device(0);
  if (peak) {
    fmt::print("{}\n", dense_peak_flops(cuda::device_text(), DType::bf16));
    return 0;
  }
  CudaBench bench(options);
  if (ceiling > 0) {
    fmt::print("{}\n", product_ceiling(bench, ceiling));
    return 0;
  }
  time_all(bench);
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
