// Times whole training steps of GPT-2 against the peak of fused multiply-adds measured in the same
// run, A B A B: peak, step, peak, step. A step is everything but reading data: forward, backward,
// norm, clip and AdamW over all micro-batches.
//
//   step_bench --layers 12 --hidden 768 --heads 12 --sequence 64 --batch 4 --precision fp32

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/rng.h"
#include "core/tensor/profile.h"
#include "model/cost/flops.h"
#include "model/stage.h"
#include "optim/adamw_optimizer.h"
#include "tools/bench/fma_peak.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

struct BenchOptions {
  ModelConfig model{.layers = 12, .hidden = 768, .heads = 12, .sequence = 64, .vocab = 50257};
  int batch = 4;
  int pairs = 7;
  int num_threads = default_num_threads();
  std::string precision = "fp32";
};

std::vector<OptimizedTensor> optimized_tensors(const Parameters& parameters) {
  std::vector<OptimizedTensor> tensors;
  for (const Parameter& parameter : parameters.all()) {
    const bool decay = decays(parameter.spec.role, false);
    tensors.push_back({.name = parameter.spec.name,
                       .weight = parameter.weight,
                       .gradient = parameter.gradient,
                       .weight_copy = parameter.weight_bf16,
                       .decay = decay ? WeightDecay::yes : WeightDecay::no});
  }
  return tensors;
}

// A model, its optimizer and one batch of random tokens.
class StepRunner {
 public:
  StepRunner(const BenchOptions& options, Profile& profile)
      : options_(options),
        stream_({.num_threads = options.num_threads,
                 .workspace_bytes = Stage::workspace_bytes(
                     options.model, stage_options(options), options.num_threads),
                 .profile = &profile}),
        parameters_(options.model, {.compute = stage_options(options).compute}),
        stage_(parameters_, options.model, stage_options(options)),
        optimizer_(optimized_tensors(parameters_), OptimizerConfig{}) {
    for (const Parameter& parameter : parameters_.all()) {
      initialize(stream_, parameter, {0, parameter.weight.num_elements()}, parameter.weight, 1);
    }
    parameters_.refresh_copies(stream_);
    const PhiloxKey key = philox_key(1, "tokens");
    for (int i = 0; i < options.batch * options.model.sequence; ++i) {
      const double unit = uniform_number(key, static_cast<std::uint64_t>(i));
      tokens_.push_back(static_cast<std::int32_t>(unit * options.model.vocab));
    }
    targets_ = tokens_;
    std::rotate(targets_.begin(), targets_.begin() + 1, targets_.end());
  }

  double step() {
    const auto start = std::chrono::steady_clock::now();
    const Pass pass{.stream = stream_,
                    .sum = &sum_,
                    .batch = {.tokens = Tensor(std::span(tokens_))
                                            .reshaped({options_.batch, options_.model.sequence}),
                              .targets = Tensor(std::span(targets_))},
                    .losses = &losses_};
    stage_.begin_step(stream_);
    stage_.forward(pass);
    stage_.backward(pass, 1.0F / static_cast<float>(tokens_.size()));
    loss_ = losses_.take(stream_);
    stage_.finish_gradients(stream_);
    {
      const ProfileRange range(stream_, "optimizer");
      const std::vector<double> squares = optimizer_.squared_norms(stream_);
      const double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
      optimizer_.step(stream_, 1e-4, norm);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  [[nodiscard]] double loss() const { return loss_ / static_cast<double>(tokens_.size()); }

  [[nodiscard]] Stream& stream() { return stream_; }

 private:
  static Stage::Options stage_options(const BenchOptions& options) {
    return {.micro_batch = {.B = options.batch, .T = options.model.sequence},
            .compute = options.precision == "bf16" ? DType::bf16 : DType::f32};
  }

  BenchOptions options_;
  Stream stream_;
  NoTensorSum sum_;
  Parameters parameters_;
  Stage stage_;
  AdamwOptimizer optimizer_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
  LossSum losses_;
  double loss_ = 0.0;
};

struct Measured {
  Spread seconds;
  Spread share;  // of the FMA peak measured just before each step
};

Measured measure(StepRunner& runner, int pairs, double flops) {
  std::vector<double> seconds;
  std::vector<double> shares;
  for (int pair = 0; pair < pairs; ++pair) {
    const double peak = fma_peak_flops(runner.stream().pool());
    seconds.push_back(runner.step());
    shares.push_back(flops / seconds.back() / peak);
  }
  return {.seconds = spread(seconds), .share = spread(shares)};
}

void print_profile(const Profile& profile, const BenchOptions& options, double step_seconds) {
  for (const auto& [name, entry] : profile.entries()) {
    const double seconds = entry.seconds / options.pairs;
    fmt::print(
        "  {:<16} {:7.2f} ms  {:4.1f} %\n", name, 1e3 * seconds, 100 * seconds / step_seconds);
  }
}

void print_step(const BenchOptions& options) {
  Profile profile;
  StepRunner runner(options, profile);
  const double tokens = static_cast<double>(options.batch) * options.model.sequence;
  const double flops = flops_per_token(options.model).causal * tokens;
  runner.step();  // first touch of all memory
  runner.step();
  profile.clear();
  const auto [seconds, share] = measure(runner, options.pairs, flops);
  fmt::print("{}, {} layers x {}, {} parameters, batch {} x {}, {} threads, recompute none\n",
             options.precision,
             options.model.layers,
             options.model.hidden,
             num_parameters(options.model),
             options.batch,
             options.model.sequence,
             options.num_threads);
  fmt::print(
      "step {:.1f} ms ({:.1f} .. {:.1f}), {:.0f} tokens/s, {:.2f} GFLOP (causal), loss {:.4f}\n",
      1e3 * seconds.median,
      1e3 * seconds.low,
      1e3 * seconds.high,
      tokens / seconds.median,
      flops * 1e-9,
      runner.loss());
  fmt::print("share of the fp32 FMA peak {:.1f} % ({:.1f} .. {:.1f})\n",
             100 * share.median,
             100 * share.low,
             100 * share.high);
  print_profile(profile, options, seconds.median);
}

int run(int argc, char** argv) {
  BenchOptions options;
  CommandLine line("Times whole training steps against the FMA peak of the same run", "step_bench");
  Command app = line.root();
  app.option("--layers", &options.model.layers, "");
  app.option("--hidden", &options.model.hidden, "");
  app.option("--heads", &options.model.heads, "");
  app.option("--sequence", &options.model.sequence, "");
  app.option("--vocab", &options.model.vocab, "");
  app.option("--batch", &options.batch, "Sequences of the one micro-batch");
  app.option("--pairs", &options.pairs, "Timed pairs of peak and step");
  app.option("--threads", &options.num_threads, "");
  app.option("--precision", &options.precision, "", {.one_of = {"fp32", "bf16"}});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  options.model.ffn = 4 * options.model.hidden;
  print_step(options);
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
