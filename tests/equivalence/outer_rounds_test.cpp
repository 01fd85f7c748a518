// Outer rounds move the anchor as docs/outer.md says: by an oracle in double that trains each
// worker as a model of its own, over layouts of a worker, methods and what they are set to.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/comm/world.h"
#include "model/parameter_table.h"
#include "parallel/step/outer_loop.h"
#include "tests/equivalence/bounds.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/logical_state.h"
#include "tests/equivalence/outer_run.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// ---- the oracle: one rank trains every worker's model, one after the other; the rest is double

using Doubles = std::map<std::string, std::vector<double>>;

template <typename F>
void for_each_element(Doubles& tensors, const F& f) {
  for (auto& [name, values] : tensors) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      f(name, i, values[i]);
    }
  }
}

Doubles weights_of(const MeshModel& model) {
  Doubles weights;
  for (const OptimizedTensor& tensor : const_cast<MeshModel&>(model).optimizer().tensors()) {
    const auto values = tensor.weight.span<float>();
    weights[tensor.name] = {values.begin(), values.end()};
  }
  return weights;
}

void set_weights(MeshModel& model, const Doubles& weights) {
  for (const OptimizedTensor& tensor : model.optimizer().tensors()) {
    const std::vector<double>& values = weights.at(tensor.name);
    std::ranges::transform(values, tensor.weight.span<float>().begin(), [](double value) {
      return static_cast<float>(value);
    });
  }
  model.publish_weights();
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double mean_of(const Doubles& tensors) {
  std::vector<double> all;
  for (const auto& [name, values] : tensors) {
    all.insert(all.end(), values.begin(), values.end());
  }
  return mean_of(all);
}

double mean_square(const Doubles& tensors, const std::string& only = "") {
  double sum = 0.0;
  double count = 0.0;
  for (const auto& [name, values] : tensors) {
    if (only.empty() || only == name) {
      sum += std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
      count += static_cast<double>(values.size());
    }
  }
  return sum / count;
}

// Adds the squares of the directions of a model's last update.
void add_squared_directions(MeshModel& model, Doubles& squares) {
  AdamwOptimizer& optimizer = model.optimizer();
  const OptimizerConfig config = model.options().optimizer;
  const auto count = static_cast<double>(optimizer.step_count());
  for (const OptimizedTensor& tensor : optimizer.tensors()) {
    const auto m = optimizer.first_moment(tensor.name).span<float>();
    const auto v = optimizer.second_moment(tensor.name).span<float>();
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double root = std::sqrt(v[i] / (1.0 - std::pow(config.beta2, count)));
      const double direction = m[i] / (1.0 - std::pow(config.beta1, count)) / (root + config.eps);
      squares.at(tensor.name)[i] += direction * direction;
    }
  }
}

struct Oracle {
  OuterConfig config{};
  Doubles anchor{};
  Doubles momentum{};
  Doubles last_move{};
  Doubles directions{};  // mean of squares, of the round whose difference moves; where measured
  double penalty = 1.0;  // of the last move; the largest of tensors

  // `difference`: anchor - mean of end points, of a round of so many steps that began with rate
  // `first_rate` and ended with `last_rate`.
  void move(const Doubles& difference, std::int64_t steps, double first_rate, double last_rate) {
    const double g = config.method == OuterMethod::slowmo ? last_rate : 1.0;
    const double reach = static_cast<double>(steps) * first_rate;
    Doubles arrived = difference;
    penalty = 0.0;
    for (auto& [name, values] : arrived) {
      const double own = divisor(name, reach * length_of_updates(name));
      penalty = std::max(penalty, own);
      for (double& d : values) {
        d /= own;
      }
    }
    for_each_element(momentum, [&](const std::string& name, std::size_t i, double& m) {
      m = config.momentum * m + arrived.at(name)[i] / g;
      if (config.clip_kind == OuterClip::element) {
        m = std::clamp(m, -config.clip, config.clip);
      }
    });
    if (config.clip_kind == OuterClip::norm) {
      double elements = 0.0;
      for (const auto& [name, values] : momentum) {
        elements += static_cast<double>(values.size());
      }
      const double norm = std::sqrt(mean_square(momentum) * elements);
      for_each_element(momentum, [&](const std::string&, std::size_t, double& m) {
        m *= std::min(1.0, config.clip / norm);
      });
    }
    for_each_element(anchor, [&](const std::string& name, std::size_t i, double& a) {
      const double m = momentum.at(name)[i];
      const double u = config.nesterov ? arrived.at(name)[i] + config.momentum * m : g * m;
      last_move[name][i] = config.lr * u;
      a -= config.lr * u;
    });
  }

  [[nodiscard]] double length_of_updates(const std::string& name) const {
    if (config.reach == OuterReach::rate) {
      return 1.0;
    }
    const bool is_own = config.penalty == OuterPenalty::gap_per_tensor;
    return std::sqrt(is_own ? mean_of(directions.at(name)) : mean_of(directions));
  }

  [[nodiscard]] double divisor(const std::string& name, double reach) const {
    switch (config.penalty) {
      case OuterPenalty::none:
        return 1.0;
      case OuterPenalty::constant:
        return config.penalty_value;
      case OuterPenalty::gap:
        return 1.0 + std::sqrt(mean_square(last_move)) / reach;
      case OuterPenalty::gap_per_tensor:
        return 1.0 + std::sqrt(mean_square(last_move, name)) / reach;
    }
    return 1.0;
  }
};

// A worker's model on one rank, which sees the batches of all its data ranks.
std::vector<MicroBatch> batches_of(const std::vector<std::unique_ptr<RankBatches>>& ranks) {
  std::vector<MicroBatch> all;
  const std::size_t count = ranks.front()->micro_batches().size();
  for (std::size_t m = 0; m < count; ++m) {
    for (const std::unique_ptr<RankBatches>& rank : ranks) {
      all.push_back(rank->micro_batches()[m]);
    }
  }
  return all;
}

using Models = std::vector<std::unique_ptr<MeshModel>>;

// Calls `use` with the models of all workers, each on one rank.
void with_models(const OuterRun& run, const std::function<void(Models& models)>& use) {
  run_local_ranks(1, {}, [&](Communicator& world) {
    MeshModel::Options options = run.mesh.options();
    options.job.parallel = {};
    options.job.num_micro_batches *= run.mesh.parallel.data_ranks_of_group();
    Groups groups(world, options.job.parallel, run.mesh.model.tie_embeddings);
    Models models;
    for (int worker = 0; worker < run.mesh.parallel.num_workers(); ++worker) {
      models.push_back(std::make_unique<MeshModel>(options, groups));
      models.back()->initialize(kSeed);
    }
    use(models);
  });
}

// `directions`: what a round's are added up in.
void train(const OuterRun& run, Models& models, int step, Doubles* directions = nullptr) {
  const int ranks_of_worker = run.mesh.parallel.data_ranks_of_group();
  for (int worker = 0; worker < std::ssize(models); ++worker) {
    std::vector<std::unique_ptr<RankBatches>> ranks;
    ranks.reserve(static_cast<std::size_t>(ranks_of_worker));
    for (int rank = 0; rank < ranks_of_worker; ++rank) {
      ranks.push_back(
          std::make_unique<RankBatches>(run.mesh, worker * ranks_of_worker + rank, step));
    }
    MeshModel& model = *models[static_cast<std::size_t>(worker)];
    const StepFacts facts = model.make_gradients(batches_of(ranks));
    model.update(rate_of(step), facts.gradient_norm);
    model.finish_gather();
    if (directions != nullptr) {
      add_squared_directions(model, *directions);
    }
  }
}

Doubles zeros_like(Doubles tensors) {
  for_each_element(tensors, [](const std::string&, std::size_t, double& x) { x = 0.0; });
  return tensors;
}

struct Expected {
  LogicalTensors anchor{};
  std::vector<double> penalties{};  // by which ends have divided late differences
};

Expected oracle_result(const OuterRun& run) {
  const int workers = run.mesh.parallel.num_workers();
  Expected result;
  with_models(run, [&](Models& models) {
    Oracle oracle{.config = run.outer, .anchor = weights_of(*models.front())};
    oracle.momentum = zeros_like(oracle.anchor);
    oracle.last_move = oracle.momentum;
    std::vector<Doubles> starts(models.size(), oracle.anchor);  // of a round
    struct Late {
      Doubles difference{};
      Doubles directions{};
      std::int64_t begin = 0;
      std::int64_t end = 0;
    };
    std::optional<Late> late;
    std::int64_t begin = 0;
    Doubles directions = oracle.momentum;
    const auto move = [&](Oracle& moved, const Late& round) {
      moved.directions = round.directions;
      const double updates = static_cast<double>(round.end - round.begin) * workers;
      for_each_element(moved.directions,
                       [&](const std::string&, std::size_t, double& square) { square /= updates; });
      moved.move(
          round.difference, round.end - round.begin, rate_of(round.begin + 1), rate_of(round.end));
    };
    for (int step = 1; step <= run.mesh.steps; ++step) {
      train(run, models, step, &directions);
      const bool last = step == run.mesh.steps;
      if (!last && step % *run.outer.period != 0) {
        continue;
      }
      Late own{.difference = zeros_like(oracle.anchor),
               .directions = std::exchange(directions, zeros_like(oracle.anchor)),
               .begin = begin,
               .end = step};
      for (std::size_t worker = 0; worker < models.size(); ++worker) {
        const Doubles ends = weights_of(*models[worker]);
        for_each_element(starts[worker], [&](const std::string& name, std::size_t i, double& w) {
          w -= ends.at(name)[i];  // what it has learned
          own.difference.at(name)[i] += w / workers;
        });
      }
      if (last && run.outer.ending == OuterEnding::mean) {
        oracle.anchor = zeros_like(oracle.anchor);
        for (const std::unique_ptr<MeshModel>& model : models) {
          const Doubles ends = weights_of(*model);
          for_each_element(oracle.anchor, [&](const std::string& name, std::size_t i, double& a) {
            a += ends.at(name)[i] / workers;
          });
        }
        break;
      }
      if (run.outer.is_late() && late) {
        move(oracle, *late);
      }
      result.penalties.push_back(oracle.penalty);
      if (run.outer.is_late() && !last) {
        late = own;
      } else {
        move(oracle, own);
      }
      begin = step;
      for (std::size_t worker = 0; worker < models.size(); ++worker) {
        Oracle ahead = oracle;
        if (run.outer.eager && !last) {
          Late expected = own;
          for_each_element(expected.difference,
                           [&](const std::string& name, std::size_t i, double& difference) {
                             difference = run.outer.lead * starts[worker].at(name)[i];
                           });
          move(ahead, expected);
        }
        starts[worker] = ahead.anchor;
        set_weights(*models[worker], starts[worker]);
      }
    }
    for (const auto& [name, values] : oracle.anchor) {
      result.anchor[name] = {values.begin(), values.end()};
    }
  });
  return result;
}

// Fragments travel until the next one is due, and are mixed into weights that have gone on.
Expected oracle_of_fragments(const OuterRun& run) {
  const OuterConfig& config = run.outer;
  const std::vector<ParameterSpec> table = parameter_table(run.mesh.model);
  const std::vector<int> fragments = fragments_of(table, config.fragments);
  Expected result;
  with_models(run, [&](Models& models) {
    const Doubles initial = weights_of(*models.front());
    std::vector<Oracle> parts(static_cast<std::size_t>(config.fragments), {.config = config});
    for (std::size_t i = 0; i < table.size(); ++i) {
      Oracle& part = parts[static_cast<std::size_t>(fragments[i])];
      part.anchor[table[i].name] = initial.at(table[i].name);
      part.momentum = part.last_move = zeros_like(part.anchor);
    }
    std::optional<std::size_t> travels;
    Doubles difference;  // of what travels, as it was sent
    const auto send = [&](std::size_t fragment) {
      travels = fragment;
      difference = parts[fragment].anchor;
      for (const std::unique_ptr<MeshModel>& model : models) {
        const Doubles weights = weights_of(*model);
        for_each_element(difference, [&](const std::string& name, std::size_t i, double& d) {
          d -= weights.at(name)[i] / static_cast<double>(models.size());
        });
      }
    };
    const auto receive = [&](double mix) {
      Oracle& part = parts[*travels];
      part.move(difference, 1, 1.0, 1.0);
      for (const std::unique_ptr<MeshModel>& model : models) {
        Doubles weights = weights_of(*model);
        for_each_element(part.anchor, [&](const std::string& name, std::size_t i, double& a) {
          double& weight = weights.at(name)[i];
          weight = mix * weight + (1.0 - mix) * a;
        });
        set_weights(*model, weights);
      }
      travels.reset();
    };
    const std::int64_t apart = *config.period / config.fragments;
    for (int step = 1; step <= run.mesh.steps; ++step) {
      train(run, models, step);
      const bool last = step == run.mesh.steps;
      if (travels && (last || step % apart == 0)) {
        receive(config.mix);
      }
      for (int fragment = 0; fragment < config.fragments; ++fragment) {
        const bool due = (step - fragment * apart) % *config.period == 0;
        if (due && !last) {
          send(static_cast<std::size_t>(fragment));
        } else if (last) {
          send(static_cast<std::size_t>(fragment));
          receive(0.0);
        }
      }
    }
    for (const Oracle& part : parts) {
      for (const auto& [name, values] : part.anchor) {
        result.anchor[name] = {values.begin(), values.end()};
      }
    }
  });
  return result;
}

double largest_difference(const LogicalTensors& actual, const LogicalTensors& expected) {
  double largest = 0.0;
  for (const auto& [name, values] : expected) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(double{actual.at(name)[i]} - values[i]));
    }
  }
  return largest;
}

void require_oracle(const OuterRun& run) {
  const OuterResult result = run_outer(run);
  for (std::size_t worker = 1; worker < result.anchors.size(); ++worker) {
    CHECK(tensor_differences("the anchor", result.anchors[worker], result.anchors[0]) == "");
  }
  const Expected expected =
      run.outer.has_fragments() ? oracle_of_fragments(run) : oracle_result(run);
  // As of layouts, and an outer rate and momentum add up what differs of up to three rounds.
  CHECK(largest_difference(result.anchors[0], expected.anchor) <=
        3.0 * kFloatRounding.weight * kLearningRate);
  if (run.outer.measures_moves()) {
    REQUIRE(result.rounds.size() == expected.penalties.size());
    for (std::size_t end = 0; end < expected.penalties.size(); ++end) {
      INFO("end " << end);
      // Few elements are as far off as the bound above lets them.
      CHECK(result.rounds[end].penalty == Approx(expected.penalties[end]).epsilon(0.01));
    }
  }
}

const std::vector<std::string>& settings() {
  static const std::vector<std::string> list = {
      R"({"method": "co2", "period": 2})",
      R"({"method": "co2", "period": 2, "penalty": 1.5, "momentum": 0.5, "lr": 0.5})",
      R"({"method": "co2", "period": 2, "penalty": "gap", "momentum": 0.5})",
      R"({"method": "co2", "period": 1, "penalty": "gap_per_tensor"})",
      R"({"method": "co2", "period": 2, "clip": 0.0005})",
      R"({"method": "co2", "period": 2, "clip": 0.02, "clip_kind": "norm"})",
      R"({"method": "co2", "period": 3, "delay": 0})",
      R"({"method": "slowmo", "period": 2})",
      R"({"method": "diloco", "period": 2})",
      R"({"method": "diloco", "period": 4, "delay": 1, "nesterov": false})",
      R"({"method": "co2", "period": 2, "eager": true, "nesterov": true, "penalty": 1.2})",
      R"({"method": "diloco", "period": 1, "delay": 1, "eager": true, "lead": 0.3, "lr": 0.3})",
      R"({"method": "co2", "period": 2, "ending": "mean"})",
      R"({"method": "co2", "period": 2, "ending": "mean", "eager": true})",
      R"({"method": "diloco", "period": 2, "fragments": 2})",
      R"({"method": "diloco", "period": 3, "fragments": 3, "mix": 0, "nesterov": false})",
      R"({"method": "co2", "period": 2, "penalty": "gap", "momentum": 0.5, "reach": "measured"})",
      R"({"method": "co2", "period": 2, "penalty": "gap_per_tensor", "reach": "measured"})",
      R"({"method": "co2", "period": 3, "penalty": "gap", "eager": true, "reach": "measured"})",
      R"({"method": "co2", "period": 1, "nesterov": true, "momentum": 0.5, "clip": 0.1, "clip_kind": "norm"})",
      R"({"method": "co2", "period": 2, "eager": true, "clip": 0.05, "clip_kind": "norm"})",
      R"({"method": "co2", "period": 1, "penalty": "gap", "eager": true})",
      R"({"method": "co2", "period": 1, "penalty": "gap_per_tensor", "nesterov": true})",
      R"({"method": "co2", "period": 1, "penalty": "gap", "nesterov": true, "clip": 0.0005})"};
  return list;
}

}  // namespace

TEST_CASE("two workers of one rank follow the oracle by every method") {
  for (const std::string& outer : settings()) {
    INFO(outer);
    require_oracle(run_of(outer, 1, 1, 2, 1));
  }
}

TEST_CASE("workers of every layout and strategy follow the oracle") {
  const std::vector<std::tuple<int, int, int, int, const char*>> layouts = {
      {1, 1, 4, 2, "NNN"}, {1, 2, 4, 2, "NNI"}, {2, 1, 4, 2, "III"}, {2, 2, 2, 1, "NNN"},
      {1, 2, 4, 2, "III"}, {1, 1, 6, 3, "NII"}, {1, 1, 3, 1, "NNN"}, {1, 2, 4, 2, "NNG"},
      {1, 1, 4, 2, "NII"}, {2, 1, 2, 1, "NNN"}, {1, 2, 4, 2, "NNN"}, {1, 2, 4, 2, "NII"},
      {2, 1, 4, 2, "NII"}, {1, 1, 4, 2, "NNI"}, {2, 1, 4, 2, "III"}, {1, 2, 2, 1, "NNN"},
      {2, 2, 4, 2, "NNN"}, {1, 2, 4, 2, "NII"}, {2, 1, 4, 2, "NNI"}, {1, 2, 4, 2, "NII"},
      {2, 1, 2, 1, "NNN"}, {1, 2, 4, 2, "NNI"}, {2, 1, 4, 2, "NII"}, {1, 1, 4, 2, "NNN"}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto& [tensor, pipeline, data, group, letters] = layouts[i];
    OuterRun run = run_of(settings()[i], tensor, pipeline, data, group);
    INFO(settings()[i] << ", tensor " << tensor << ", pipeline " << pipeline << ", data " << data
                       << ", " << letters);
    run.mesh.parallel.data_strategy = *data_strategy_named(letters);
    run.mesh.global_batch = data % 3 == 0 ? 12 : 16;
    require_oracle(run);
  }
}

// Top-K of a twentieth would leave the anchor where it was almost everywhere.
TEST_CASE("the mean of the last end points is plain, whatever codes rounds") {
  OuterRun run = run_of(R"({"method": "co2", "period": 6, "ending": "mean"})", 1, 1, 2, 1);
  run.codec = {.kind = CodecKind::top_k, .error_feedback = ErrorFeedback::immediate, .ratio = 0.05};
  require_oracle(run);
}

// What moves an anchor by the whole mean of one step, at once, is a step on the mean of the
// workers' weights: with the same samples everywhere that of one worker.
TEST_CASE("workers with the same samples that meet at once after each step are one worker") {
  OuterRun apart =
      run_of(R"({"method": "co2", "period": 1, "delay": 0, "lr": 1, "momentum": 0})", 1, 1, 2, 1);
  apart.same_samples = true;
  OuterRun alone = apart;
  alone.outer.period = 1 << 20;  // one round: its anchor is the mean of equal end points
  const OuterResult met = run_outer(apart);
  const OuterResult kept = run_outer(alone);
  // a - (a - w) rounds as w does, once a step.
  CHECK(largest_difference(met.anchors[0], kept.anchors[0]) <=
        kFloatRounding.weight * kLearningRate);
}

TEST_CASE("the bytes of a round are those of one sum of the gradients") {
  OuterRun run = run_of(R"({"method": "co2", "period": 3})", 1, 1, 4, 1);
  const OuterResult result = run_outer(run);  // two rounds in six steps
  double parameters = 0.0;
  for (const auto& [name, values] : result.anchors[0]) {
    parameters += static_cast<double>(values.size());
  }
  // Each rank sends all but its slice, twice.
  CHECK(static_cast<double>(result.outer_bytes) == Approx(2 * 2 * 3 * 4 * parameters));
}

}  // namespace slackline::testing
