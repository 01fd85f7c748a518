// Times a low-rank message of all matrices of GPT-2 124M with error feedback, as data ranks sum it
// (both factors and the decoded sum; one rank, no transfer), against copying the gradient twice, in
// turns in the same run. 2 is the limit the project sets itself for the ratio at rank 4: the
// message moves 28 bytes an element, two copies 16, or 24 with what stores fetch first.
//
//   low_rank_bench [--rank 4] [--pairs 9] [--threads N]

#include <string>
#include <vector>

#include <fmt/core.h>

#include "compress/codec.h"
#include "compress/residuals.h"
#include "core/kernels/elementwise/elementwise.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

struct Settings {
  int rank = 4;
  int num_pairs = 9;
  int num_threads = default_num_threads();
};

std::vector<CodecPart> gpt2_matrices() {
  std::vector<CodecPart> parts = {{.name = "wte", .shape = {50257, 768}},
                                  {.name = "wpe", .shape = {1024, 768}}};
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = fmt::format("h.{}.", layer);
    parts.push_back({.name = prefix + "attn.c_attn", .shape = {768, 2304}});
    parts.push_back({.name = prefix + "attn.c_proj", .shape = {768, 768}});
    parts.push_back({.name = prefix + "mlp.c_fc", .shape = {768, 3072}});
    parts.push_back({.name = prefix + "mlp.c_proj", .shape = {3072, 768}});
  }
  return parts;
}

void compare(const Settings& settings) {
  const std::vector<CodecPart> parts = gpt2_matrices();
  const CodecSetting setting{.kind = CodecKind::low_rank,
                             .error_feedback = ErrorFeedback::immediate,
                             .rank = settings.rank};
  const std::unique_ptr<Codec> codec = make_codec(setting, parts, 1);
  const Residuals residuals(setting.error_feedback, parts, 1);
  Residuals gradient(ErrorFeedback::lazy, parts, 1);  // the same memory and views
  Residuals copied(ErrorFeedback::lazy, parts, 1);
  Stream stream({.name = "bench",
                 .num_threads = settings.num_threads,
                 .workspace_bytes = codec->workspace_bytes(settings.num_threads)});
  std::size_t elements = 0;
  for (const Tensor& matrix : gradient.of(0)) {
    elements += matrix.num_elements();
    for (std::size_t i = 0; i < matrix.num_elements(); ++i) {
      matrix.data<float>()[i] =
          static_cast<float>(static_cast<int>(i * 2654435761U % 2001U) - 1000);
    }
  }
  const auto message = [&] {
    codec->begin_sum(stream, gradient.of(0), residuals.of(0), {});
    codec->next_sum(stream, gradient.of(0), residuals.of(0));
    codec->finish_sum(stream, gradient.of(0), residuals.of(0), 1);
  };
  const auto copy_twice = [&] {
    for (int time = 0; time < 2; ++time) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        cast(stream, gradient.of(0)[i], copied.of(0)[i]);
      }
    }
  };
  copy_twice();
  message();
  std::vector<double> copies;
  std::vector<double> messages;
  std::vector<double> ratios;
  for (int pair = 0; pair < settings.num_pairs; ++pair) {
    copies.push_back(seconds_of(copy_twice));
    messages.push_back(seconds_of(message));
    ratios.push_back(messages.back() / copies.back());
  }
  const Spread ratio = spread(ratios);
  fmt::print(
      "{} elements, {} threads, rank {}: copied twice {:.1f} ms ({:.1f} GB/s), message "
      "{:.1f} ms, ratio {:.2f} ({:.2f} .. {:.2f}) of {} pairs\n",
      elements,
      settings.num_threads,
      settings.rank,
      1e3 * spread(copies).median,
      16e-9 * static_cast<double>(elements) / spread(copies).median,
      1e3 * spread(messages).median,
      ratio.median,
      ratio.low,
      ratio.high,
      settings.num_pairs);
}

int run(int argc, char** argv) {
  Settings settings;
  CommandLine line("Times low-rank messages of GPT-2's gradients against copies", "low_rank_bench");
  Command app = line.root();
  app.option("--rank", &settings.rank, "", {.limit = Limit::positive});
  app.option("--pairs", &settings.num_pairs, "", {.limit = Limit::positive});
  app.option("--threads", &settings.num_threads, "", {.limit = Limit::positive});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  compare(settings);
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
