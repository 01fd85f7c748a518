#include "model/generate/decoder.h"

#include <cmath>
#include <string>
#include <vector>

#include "core/kernels/elementwise/elementwise.h"
#include "core/rng.h"
#include "core/tensor/host_tensor.h"
#include "model/stage.h"
#include "tests/support/catch.h"
#include "tests/support/thread_counts.h"

namespace slackline {
namespace {

using testing::test_workers;

// Odd sizes: no dimension is a multiple of a vector.
constexpr ModelConfig kConfig{
    .layers = 3, .hidden = 30, .heads = 5, .sequence = 13, .vocab = 37, .ffn = 50};

constexpr float kTolerance = 2e-5F;  // logits of size 1: fp32 rounding through three layers

std::vector<std::int32_t> some_tokens(std::size_t count) {
  std::vector<std::int32_t> tokens;
  const PhiloxKey key = philox_key(3, "tokens");
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(uniform_number(key, i) * kConfig.vocab));
  }
  return tokens;
}

// Weights large enough that attention and GELU matter.
void randomize(Parameters& parameters) {
  for (Parameter& parameter : parameters.all()) {
    const PhiloxKey key = philox_key(11, parameter.spec.name);
    const HostTensor host(parameter.weight, HostTensor::Contents::undefined);
    const std::span<float> weight = host.tensor().span<float>();
    const bool norm = parameter.spec.role == ParameterRole::norm_weight;
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] = static_cast<float>((norm ? 1.0 : 0.0) + 0.2 * normal_pair(key, i)[0]);
    }
    host.write_back();
  }
}

Stage::Options options_for(std::int64_t T) {
  return {.micro_batch = {.B = 1, .T = T}, .purpose = Stage::Purpose::evaluate};
}

std::size_t workspace_for(const ModelConfig& config, const Workers& workers) {
  std::size_t bytes = Decoder::workspace_bytes(config, workers);
  for (std::int64_t T = 1; T <= config.sequence; ++T) {
    bytes = std::max(bytes, Stage::workspace_bytes(config, options_for(T), workers));
  }
  return bytes;
}

struct Model {
  ModelConfig config;
  Parameters parameters;
  Stream stream;

  explicit Model(const ModelConfig& model, const Workers& workers = test_workers(2))
      : config(model),
        parameters(config, {.gradients = Gradients::none, .device = workers.device}),
        stream({.device = workers.device,
                .num_threads = workers.num_threads,
                .workspace_bytes = workspace_for(config, workers)}) {
    randomize(parameters);
  }

  // Logits after `tokens`, by the training code.
  std::vector<float> expected(std::span<const std::int32_t> read) {
    std::vector<std::int32_t> tokens(read.begin(), read.end());
    NoTensorSum sum;
    Stage stage(parameters, config, options_for(config.sequence));
    const auto N = static_cast<std::int64_t>(tokens.size());
    const Backing backing = backing_of(stream.device());
    const Buffer there = make_buffer("tokens", DType::i32, {1, N}, backing);
    const Tensor batch = there.view(DType::i32, {1, N});
    cast(stream, Tensor(tokens.data(), DType::i32, {1, N}), batch);
    const Pass pass{.stream = stream, .sum = &sum, .batch = {.tokens = batch, .targets = {}}};
    stage.forward(pass);
    const Shape row{1, config.vocab};
    const Buffer logits = make_buffer("logits", DType::f32, row, backing);
    stage.head().logits(
        stream, stage.final_norm_output().rows(N - 1, N), logits.view(DType::f32, row));
    stream.synchronize();
    const HostTensor host(logits.view(DType::f32, row));
    const std::span<const float> values = host.tensor().span<float>();
    return {values.begin(), values.end()};
  }
};

void check_close(std::span<const float> found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  float largest = 0.0F;
  for (std::size_t i = 0; i < found.size(); ++i) {
    REQUIRE(std::isfinite(found[i]));
    largest = std::max(largest, std::abs(found[i] - expected[i]));
  }
  CHECK(largest <
        kTolerance * std::abs(*std::max_element(expected.begin(), expected.end())) + kTolerance);
}

}  // namespace

TEST_CASE("cached keys and values give the logits of a whole forward pass at every position") {
  for (const bool tied : {true, false}) {
    ModelConfig config = kConfig;
    config.tie_embeddings = tied;
    Model model(config);
    const std::vector<std::int32_t> tokens = some_tokens(13);
    for (const std::size_t prompt : {1U, 4U, 13U}) {
      Decoder decoder(model.parameters, config);
      decoder.start(model.stream, std::span(tokens).first(prompt));
      for (std::size_t length = prompt;; ++length) {
        INFO("tied " << tied << ", prompt " << prompt << ", length " << length);
        check_close(decoder.logits(), model.expected(std::span(tokens).first(length)));
        if (length == tokens.size()) {
          break;
        }
        decoder.append(model.stream, tokens[length]);
      }
    }
  }
}

TEST_CASE("logits of a prompt have the bits of a forward pass") {
  Model model(kConfig);
  const std::vector<std::int32_t> tokens = some_tokens(13);
  for (const std::size_t prompt : {1U, 4U, 13U}) {
    Decoder decoder(model.parameters, kConfig);
    decoder.start(model.stream, std::span(tokens).first(prompt));
    const std::vector<float> logits(decoder.logits().begin(), decoder.logits().end());
    CHECK(logits == model.expected(std::span(tokens).first(prompt)));
  }
}

TEST_CASE("a full context goes on with its newest half") {
  Model model(kConfig);
  const std::vector<std::int32_t> tokens = some_tokens(30);
  Decoder decoder(model.parameters, kConfig);
  decoder.start(model.stream, std::span(tokens).first(10));
  for (std::size_t length = 11; length <= tokens.size(); ++length) {
    decoder.append(model.stream, tokens[length - 1]);
    // 13 positions: the 14th token leaves the newest 6, and so on every 8 tokens.
    const std::size_t expected = length <= 13 ? length : 6 + (length - 14) % 8;
    INFO("length " << length);
    REQUIRE(decoder.context().size() == expected);
    const std::span<const std::int32_t> newest = std::span(tokens).first(length).last(expected);
    REQUIRE(std::equal(newest.begin(), newest.end(), decoder.context().begin()));
    check_close(decoder.logits(), model.expected(newest));
  }
}

TEST_CASE("of a prompt longer than the context the newest tokens count") {
  Model model(kConfig);
  const std::vector<std::int32_t> tokens = some_tokens(20);
  Decoder decoder(model.parameters, kConfig);
  decoder.start(model.stream, tokens);
  check_close(decoder.logits(), model.expected(std::span(tokens).last(13)));
}

TEST_CASE("a model of one position sees the newest token alone") {
  ModelConfig config = kConfig;
  config.sequence = 1;
  Model model(config);
  Decoder decoder(model.parameters, config);
  decoder.start(model.stream, std::vector<std::int32_t>{5});
  decoder.append(model.stream, 9);
  check_close(decoder.logits(), model.expected(std::vector<std::int32_t>{9}));
}

TEST_CASE("logits have the same bits for any number of threads") {
  std::vector<float> first;
  for (const int num_threads : {1, 2, 3}) {
    Model model(kConfig, test_workers(num_threads));
    Decoder decoder(model.parameters, kConfig);
    decoder.start(model.stream, some_tokens(7));
    decoder.append(model.stream, 2);
    const std::vector<float> logits(decoder.logits().begin(), decoder.logits().end());
    if (first.empty()) {
      first = logits;
    }
    CHECK(logits == first);
  }
}

TEST_CASE("logits are those of the CPU, whatever device makes them") {
  const std::vector<std::int32_t> tokens = some_tokens(16);
  Model here(kConfig, Workers(2));
  Model there(kConfig);
  Decoder expected(here.parameters, kConfig);
  Decoder found(there.parameters, kConfig);
  expected.start(here.stream, std::span(tokens).first(6));
  found.start(there.stream, std::span(tokens).first(6));
  for (std::size_t next = 6; next <= tokens.size(); ++next) {
    INFO("after " << next << " tokens");
    REQUIRE(found.logits().size() == expected.logits().size());
    for (std::size_t i = 0; i < expected.logits().size(); ++i) {
      // Logits reach a few units: rounding of sums in other orders through three layers.
      CHECK(found.logits()[i] == Approx(expected.logits()[i]).margin(1e-5).epsilon(1e-5));
    }
    if (next < tokens.size()) {
      expected.append(here.stream, tokens[next]);
      found.append(there.stream, tokens[next]);
    }
  }
}

}  // namespace slackline
