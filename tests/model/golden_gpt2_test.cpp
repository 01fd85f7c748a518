// Logits, loss, every gradient and a 50-step loss curve of a 2-layer GPT-2 against PyTorch in
// float64; tests/reference/gpt2_golden.py makes the files.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "core/tensor/safetensors.h"
#include "model/stage.h"
#include "optim/adamw_optimizer.h"
#include "optim/learning_rate.h"
#include "tests/support/catch.h"
#include "tests/support/file_tensor.h"
#include "tests/support/gradient_norm.h"

namespace slackline {

namespace {

using testing::file_tensor;

const std::string kGolden = std::string(SL_SOURCE_DIR) + "/tests/golden/gpt2/";

ModelConfig golden_config() {
  return {.layers = 2, .hidden = 48, .heads = 3, .sequence = 16, .vocab = 61, .ffn = 192};
}

// A model with the golden weights, and the tokens it is fed.
struct GoldenModel {
  explicit GoldenModel(DType compute, Recompute recompute = Recompute::none, int num_threads = 2)
      : config(golden_config()), parameters(config, {.compute = compute}) {
    config.recompute = recompute;
    const Stage::Options options{.micro_batch = {.B = 4, .T = 16}, .compute = compute};
    stream = std::make_unique<Stream>(
        Stream::Options{.num_threads = num_threads,
                        .workspace_bytes = Stage::workspace_bytes(config, options, num_threads)});
    stage = std::make_unique<Stage>(parameters, config, options);
    const SafetensorsFile file(kGolden + "two_layer.safetensors");
    for (const Parameter& parameter : parameters.all()) {
      const Tensor golden = file_tensor(file, "weights/" + parameter.spec.name);
      REQUIRE(golden.shape() == parameter.spec.shape);
      std::copy_n(golden.data<float>(), golden.num_elements(), parameter.weight.data<float>());
    }
    parameters.refresh_copies(*stream);
  }

  // Takes (B, T + 1) tokens apart into inputs and targets.
  Pass pass(const std::int32_t* rows, std::int64_t B, std::int64_t T) {
    tokens.clear();
    targets.clear();
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int32_t* row = rows + b * (T + 1);
      tokens.insert(tokens.end(), row, row + T);
      targets.insert(targets.end(), row + 1, row + T + 1);
    }
    return {.stream = *stream,
            .sum = &sum,
            .batch = {.tokens = Tensor(std::span(tokens)).reshaped({B, T}),
                      .targets = Tensor(std::span(targets))},
            .losses = &losses};
  }

  // The sum of losses.
  double backward(const Pass& pass, float scale) {
    stage->backward(pass, scale);
    return losses.take(*stream);
  }

  [[nodiscard]] std::vector<OptimizedTensor> optimized() const {
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

  ModelConfig config;
  Parameters parameters;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Stage> stage;
  NoTensorSum sum;
  LossSum losses;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

// The gradient of every parameter, from the two files they are spread over.
class GoldenGradients {
 public:
  [[nodiscard]] std::span<double> of(const std::string& name) const {
    const std::string key = "grads/" + name;
    return file_tensor(first_.find(key) != nullptr ? first_ : second_, key).span<double>();
  }

 private:
  SafetensorsFile first_{kGolden + "two_layer_grads_0.safetensors"};
  SafetensorsFile second_{kGolden + "two_layer_grads_1.safetensors"};
};

// |a - b| / |b| in the Euclidean norm.
double relative_distance(std::span<const float> a, std::span<const double> b) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace

TEST_CASE("logits, loss and every gradient equal PyTorch's in float64") {
  const SafetensorsFile file(kGolden + "two_layer.safetensors");
  const GoldenGradients gradients;
  const Recompute recompute = GENERATE(Recompute::none, Recompute::block);
  GoldenModel model(DType::f32, recompute);
  const Pass pass = model.pass(file_tensor(file, "tokens").data<std::int32_t>(), 3, 16);

  model.stage->begin_step(*model.stream);
  model.stage->forward(pass);
  std::vector<float> logits(file_tensor(file, "logits").num_elements());
  model.stage->head().logits(*model.stream,
                             model.stage->final_norm_output(),
                             Tensor(std::span(logits)).reshaped({48, 61}));
  // fp32 rounding (6e-8) through some 40 chained operations.
  REQUIRE(relative_distance(logits, file_tensor(file, "logits").span<double>()) < 2e-6);

  const double loss = model.backward(pass, 1.0F / 48) / 48;
  model.stage->finish_gradients(*model.stream);
  REQUIRE(loss == Approx(file_tensor(file, "loss").data<double>()[0]).epsilon(1e-6));
  for (const Parameter& parameter : model.parameters.all()) {
    INFO(parameter.spec.name);
    const double distance =
        relative_distance(parameter.gradient.span<float>(), gradients.of(parameter.spec.name));
    // As above, twice as many operations and cancelling sums.
    REQUIRE(distance < 1e-5);
  }
}

TEST_CASE("bf16 gradients are within bf16 rounding of the golden ones") {
  const SafetensorsFile file(kGolden + "two_layer.safetensors");
  const GoldenGradients gradients;
  GoldenModel model(DType::bf16);
  const Pass pass = model.pass(file_tensor(file, "tokens").data<std::int32_t>(), 3, 16);
  model.stage->begin_step(*model.stream);
  model.stage->forward(pass);
  const double loss = model.backward(pass, 1.0F / 48) / 48;
  model.stage->finish_gradients(*model.stream);
  // Roundings of 48 tokens' losses go both ways: 3e-4 are left of some per cent of each.
  REQUIRE(loss == Approx(file_tensor(file, "loss").data<double>()[0]).epsilon(1e-3));
  for (const Parameter& parameter : model.parameters.all()) {
    INFO(parameter.spec.name);
    const double distance =
        relative_distance(parameter.gradient.span<float>(), gradients.of(parameter.spec.name));
    // 2^-9 per rounding, some 40 of them in a chain, adding up as their square root: 1.2 %. The
    // largest of all tensors is at 1.4 %; a product by other units may round a little otherwise.
    REQUIRE(distance < 0.02);
  }
}

TEST_CASE("gradients of two micro-batches add up to those of one") {
  const SafetensorsFile file(kGolden + "two_layer.safetensors");
  const std::int32_t* rows = file_tensor(file, "tokens").data<std::int32_t>();
  const GoldenGradients gradients;
  GoldenModel model(DType::f32);
  model.stage->begin_step(*model.stream);
  Pass first = model.pass(rows, 2, 16);
  model.stage->forward(first);
  double loss = model.backward(first, 1.0F / 48);
  Pass second = model.pass(rows + std::ptrdiff_t{2} * 17, 1, 16);
  second.accumulate = Accumulate::yes;
  model.stage->forward(second);
  loss += model.backward(second, 1.0F / 48);
  model.stage->finish_gradients(*model.stream);
  REQUIRE(loss / 48 == Approx(file_tensor(file, "loss").data<double>()[0]).epsilon(1e-6));
  for (const Parameter& parameter : model.parameters.all()) {
    INFO(parameter.spec.name);
    REQUIRE(relative_distance(parameter.gradient.span<float>(), gradients.of(parameter.spec.name)) <
            1e-5);
  }
}

TEST_CASE("a loss curve of 50 AdamW steps follows PyTorch's in float64") {
  const SafetensorsFile file(kGolden + "curve.safetensors");
  const std::span<double> losses = file_tensor(file, "losses").span<double>();
  const std::span<double> norms = file_tensor(file, "grad_norms").span<double>();
  const std::span<double> rates = file_tensor(file, "lrs").span<double>();
  const std::int32_t* tokens = file_tensor(file, "tokens").data<std::int32_t>();
  GoldenModel model(DType::f32);
  const OptimizerConfig optimizer_config{.lr = 1e-3, .min_lr = 1e-4, .warmup_steps = 5};
  AdamwOptimizer optimizer(model.optimized(), optimizer_config);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const Pass pass = model.pass(tokens + i * 4 * 17, 4, 16);
    model.stage->begin_step(*model.stream);
    model.stage->forward(pass);
    const double loss = model.backward(pass, 1.0F / 64) / 64;
    model.stage->finish_gradients(*model.stream);
    const double norm = gradient_norm(optimizer, *model.stream);
    const auto step = static_cast<std::int64_t>(i) + 1;
    INFO("step " << step);
    REQUIRE(loss == Approx(losses[i]).epsilon(5e-6));
    REQUIRE(norm == Approx(norms[i]).epsilon(1e-4));
    const double rate = learning_rate(optimizer_config, step, 50);
    REQUIRE(rate == Approx(rates[i]).epsilon(1e-12));
    optimizer.step(*model.stream, rate, norm);
  }
  // The loss of the last step's tokens shows the last update.
  const Pass again = model.pass(tokens + (losses.size() - 1) * 4 * 17, 4, 16);
  model.stage->begin_step(*model.stream);
  model.stage->forward(again);
  REQUIRE(model.backward(again, 1.0F / 64) / 64 ==
          Approx(file_tensor(file, "eval_loss").data<double>()[0]).epsilon(5e-6));
  REQUIRE(losses.back() < 0.8 * losses.front());  // the curve is one of learning
}

}  // namespace slackline
