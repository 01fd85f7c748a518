// Parameters that are not trained keep their weights and have no gradient, and the rest learns as
// it would beside them: against a run that trains all, against AdamW written out in double, and on
// every layout against one rank.

#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compress/compress_config.h"
#include "tests/equivalence/bounds.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/initial_weights.h"
#include "tests/equivalence/layouts.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using Patterns = std::vector<std::string>;

// Upper layers, biases alone, matrices alone, a tied table alone, norms alone, and parts of a
// layer on both sides of the line.
const std::vector<Patterns> kPatterns = {
    {"h.[23].*", "ln_f.*"},
    {"*.bias"},
    {"h.*.attn.*.weight", "wpe.weight"},
    {"wte.weight"},
    {"*ln_*"},
    {"h.?.mlp.*", "h.1.attn.c_attn.*", "lm_head.weight"},
};

std::vector<Layout> layouts() {
  std::vector<Layout> list;
  const auto add = [&](const std::string& name, MeshRun run) -> MeshRun& {
    list.push_back({.name = name, .run = std::move(run)});
    return list.back().run;
  };
  add("2 x 2 data ranks", grouped_run(1, 1, 4, 2));
  add("pipeline", grouped_run(1, 2, 4, 2));
  MeshRun& all = add("tensor, pipeline, recompute, sequence parallel", grouped_run(2, 2, 2, 2));
  all.model.recompute = Recompute::block;
  all.parallel.sequence_parallel = true;
  add("untied pipeline", grouped_run(1, 2, 2, 1)).model.tie_embeddings = false;
  MeshRun& interleaved = add("interleaved", grouped_run(1, 2, 2, 2));
  interleaved.parallel.schedule = ScheduleName::interleaved;
  interleaved.parallel.chunks = 2;
  add("zb_h1", grouped_run(1, 2, 2, 1)).parallel.schedule = ScheduleName::zb_h1;
  add("separate embedding sums", grouped_run(1, 2, 2, 0)).parallel.embedding_sync =
      EmbeddingSync::separate;
  return list;
}

LogicalTensors initial_weights(const ModelConfig& model) {
  Parameters parameters(model, {.gradients = Gradients::none});
  Stream stream({.name = "initial weights"});
  set_initial_weights(stream, parameters, kSeed);
  LogicalTensors weights;
  for (const Parameter& parameter : parameters.all()) {
    const std::span<const float> values = parameter.weight.span<float>();
    weights[parameter.spec.name].assign(values.begin(), values.end());
  }
  return weights;
}

MeshRun training(MeshRun run, const Patterns& patterns) {
  run.model.trainable = patterns;
  return run;
}

// Whether some pattern fits this model at all: an untied one has a head of its own.
bool fits(const ModelConfig& model, const Patterns& patterns) {
  ModelConfig config = model;
  config.trainable = patterns;
  return num_trained_parameters(config) > 0;
}

// The first update of AdamW, whose moments are zero before it.
double updated(double weight, double gradient, bool decays) {
  const OptimizerConfig config;
  const double m = (1.0 - config.beta1) * gradient / (1.0 - config.beta1);
  const double v = (1.0 - config.beta2) * gradient * gradient / (1.0 - config.beta2);
  const double decay = decays ? config.weight_decay * weight : 0.0;
  return weight - kLearningRate * (m / (std::sqrt(v) + config.eps) + decay);
}

void require_letters(const Layout& layout,
                     const Patterns& patterns,
                     const std::vector<DataStrategy>& strategies) {
  const MeshRun plain = training(layout.run, patterns);
  const MeshRunResult alone = run_mesh(on_one_rank(plain));
  std::map<char, MeshRunResult> of_order;
  of_order['N'] = run_mesh(plain);
  CHECK(beyond(distance(of_order['N'], alone), kFloatRounding) == "");
  for (const DataStrategy& strategy : strategies) {
    INFO(letters_of(strategy));
    MeshRun run = plain;
    run.parallel.data_strategy = strategy;
    const MeshRunResult result = run_mesh(run);
    CHECK(beyond(distance(result, alone), kFloatRounding) == "");
    const auto [same, is_first] = of_order.emplace(letters_of(strategy)[1], result);
    CHECK(bit_differences(result, same->second) == "");
  }
}

}  // namespace

TEST_CASE("parameters that are not trained change nothing but themselves") {
  for (const bool tied : {true, false}) {
    MeshRun all = grouped_run(1, 1, 1, 0);
    all.model.tie_embeddings = tied;
    all.steps = 1;
    const MeshRunResult full = run_mesh(all);
    const LogicalTensors initial = initial_weights(all.model);
    for (const Patterns& patterns : kPatterns) {
      if (!fits(all.model, patterns)) {
        continue;
      }
      INFO(fmt::format("tied {}, {}", tied, fmt::join(patterns, " ")));
      const MeshRun run = training(all, patterns);
      const MeshRunResult result = run_mesh(run);
      CHECK(result.losses == full.losses);
      double squares = 0.0;
      for (const auto& [name, gradient] : result.gradients) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          squares += std::pow(gradient[i], 2);
          // A bias is summed up with its matrix's gradient or on its own.
          REQUIRE(std::abs(gradient[i] - full.gradients.at(name)[i]) <=
                  4e-7 * std::abs(full.gradients.at(name)[i]) + 1e-8);
        }
      }
      // One fp32 rounding of the norm of 1e4 numbers.
      CHECK(std::abs(result.norms[0] - std::sqrt(squares)) <= 1e-6 * result.norms[0]);
      const double scale = std::min(1.0, OptimizerConfig{}.clip_norm / (result.norms[0] + 1e-6));
      for (const ParameterSpec& spec : parameter_table(run.model)) {
        const std::vector<float>& before = initial.at(spec.name);
        const std::vector<float>& after = result.weights.at(spec.name);
        REQUIRE(result.gradients.contains(spec.name) == spec.trained);
        for (std::size_t i = 0; i < after.size(); ++i) {
          if (!spec.trained) {
            REQUIRE(after[i] == before[i]);
            continue;
          }
          const double gradient = scale * result.gradients.at(spec.name)[i];
          const double expected = updated(before[i], gradient, decays(spec.role, true));
          // Rounding of a weight of up to 1, of its update, and of sqrt(v) where v is tiny.
          REQUIRE(std::abs(after[i] - expected) <= 6e-8 + 1e-5 * kLearningRate);
        }
      }
    }
  }
}

TEST_CASE("parts of a model are trained on any layout as on one rank") {
  const std::vector<DataStrategy> all = all_data_strategies();
  const std::vector<Layout> list = layouts();
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (std::size_t p = 0; p < kPatterns.size(); ++p) {
      if ((i + p) % 3 != 0 || !fits(list[i].run.model, kPatterns[p])) {
        continue;
      }
      INFO(list[i].name << ", " << fmt::format("{}", fmt::join(kPatterns[p], " ")));
      std::vector<DataStrategy> some;
      for (std::size_t k = 0; k < all.size(); ++k) {
        if ((k + i + p) % 5 == 0) {
          some.push_back(all[k]);
        }
      }
      require_letters(list[i], kPatterns[p], some);
    }
  }
}

TEST_CASE("parts of a model are trained on every layout by every strategy", "[slow]") {
  for (const Layout& layout : layouts()) {
    for (const Patterns& patterns : kPatterns) {
      if (fits(layout.run.model, patterns)) {
        INFO(layout.name << ", " << fmt::format("{}", fmt::join(patterns, " ")));
        require_letters(layout, patterns, all_data_strategies());
      }
    }
  }
}

// Weights that are not trained are bf16 everywhere: rounded once, when they were made.
TEST_CASE("parts of a model are trained under bf16 with the bits of their order") {
  const std::vector<Layout> list = layouts();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Patterns& patterns = kPatterns[i % kPatterns.size()];
    INFO(list[i].name << ", " << fmt::format("{}", fmt::join(patterns, " ")));
    if (!fits(list[i].run.model, patterns)) {
      continue;
    }
    MeshRun plain = training(list[i].run, patterns);
    plain.precision = DType::bf16;
    std::map<char, MeshRunResult> of_order;
    of_order['N'] = run_mesh(plain);
    for (const char* letters : {"NNG", "ING", "GNG", "NGG", "GGG", "IGG"}) {
      INFO(letters);
      MeshRun run = plain;
      run.parallel.data_strategy = *data_strategy_named(letters);
      const MeshRunResult result = run_mesh(run);
      const auto [same, is_first] = of_order.emplace(letters[1], result);
      CHECK(bit_differences(result, same->second) == "");
    }
  }
}

TEST_CASE("codecs sit on the gradients that there are") {
  for (const Patterns& patterns : kPatterns) {
    MeshRun run = training(grouped_run(1, 1, 2, 0), patterns);
    if (!fits(run.model, patterns)) {
      continue;
    }
    INFO(fmt::format("{}", fmt::join(patterns, " ")));
    const bool has_table = is_trained(run.model, "wte.weight");
    run.compress = read_compress_config(
        JsonReader::parse(fmt::format(R"({{"policy": "all", "{}": {{"codec": "cast"}}}})",
                                      has_table ? "embedding" : "data_gradient"),
                          "test"));
    const MeshRunResult plain = run_mesh(training(grouped_run(1, 1, 2, 0), patterns));
    const Distance far = distance(run_mesh(run), plain);
    // Rounding of both ranks' gradients to bf16: half an ulp of 2^-8 each, and none at all would be
    // a codec that was not there.
    CHECK(far.gradient <= 4e-3);
    CHECK((far.gradient > 1e-5 || patterns == Patterns{"*.bias"} || patterns == Patterns{"*ln_*"}));
  }
}

}  // namespace slackline::testing
