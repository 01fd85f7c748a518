// Compressed outer rounds: what arrives and what workers owe is what they have learned, whatever
// the codec; all workers have the same anchor on every layout; bytes are those of the formulas.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "compress/compress_config.h"
#include "parallel/predict/outer_round.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/outer_run.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

constexpr const char* kWholeMean =
    R"({"method": "co2", "period": 2, "delay": 0, "lr": 1, "momentum": 0})";

const std::vector<std::string>& codecs() {
  static const std::vector<std::string> list = {
      R"({"codec": "quantize", "bits": 4})",
      R"({"codec": "quantize", "bits": 2, "rounding": "stochastic"})",
      R"({"codec": "top_k", "ratio": 0.05})",
      R"({"codec": "random_k", "ratio": 0.1})",
      R"({"codec": "low_rank", "rank": 4})",
      R"({"codec": "cast"})"};
  return list;
}

OuterRun coded(OuterRun run, const std::string& codec) {
  JsonReader section = JsonReader::parse(codec, "test");
  run.codec = read_round_setting(section);
  return run;
}

using Doubles = std::map<std::string, std::vector<double>>;

void add_to(Doubles& sums, const std::string& name, const Tensor& values, double factor) {
  std::vector<double>& sum = sums[name];
  sum.resize(values.num_elements());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += factor * double{values.data<float>()[i]};
  }
}

// What workers of one rank each have learned in a round, and what became of it.
struct Ledger {
  std::mutex mutex{};
  Doubles learned{};
  Doubles owed{};     // more than before the round
  Doubles arrived{};  // what the anchor has moved by, times the workers

  void add_owed(const OuterLoop& outer, double factor) {
    const std::string site = "residual/outer/";
    for (const ChannelState& state : outer.codec_state()) {
      const std::string name = state.name.substr(site.size());
      if (!name.ends_with("right_factor")) {
        add_to(owed, name.substr(0, name.find('/')), state.data, factor);
      }
    }
  }

  void before(MeshModel& model, OuterLoop& outer) {
    const std::scoped_lock lock(mutex);
    for (const OuterLoop::State& state : outer.all_state()) {
      const std::string& name = state.piece->parameter->spec.name;
      add_to(learned, name, state.anchor, 1.0);
      add_to(learned, name, model.optimizer().tensors()[state.share.piece].weight, -1.0);
      add_to(arrived, name, state.anchor, 1.0);
    }
    add_owed(outer, -1.0);
  }

  void after(OuterLoop& outer) {
    const std::scoped_lock lock(mutex);
    for (const OuterLoop::State& state : outer.all_state()) {
      add_to(arrived, state.piece->parameter->spec.name, state.anchor, -1.0);
    }
    add_owed(outer, 1.0);
  }
};

OuterResult run_with(const OuterRun& run, Ledger& ledger) {
  return run_outer(
      run,
      {.before_end = [&](MeshModel& model, OuterLoop& outer) { ledger.before(model, outer); },
       .after_end = [&](MeshModel&, OuterLoop& outer) { ledger.after(outer); }});
}

std::size_t bytes_of_rounds(const OuterRun& run, int rounds) {
  MeshJob job = run.mesh.options().job;
  job.parallel = job.parallel.of_worker();
  const int workers = run.mesh.parallel.num_workers();
  return static_cast<std::size_t>(rounds) *
         outer_round(job, workers, {.codec = run.codec}, {}).bytes;
}

}  // namespace

TEST_CASE("what arrives of a compressed round and what is owed is what workers have learned") {
  for (const std::string& codec : codecs()) {
    if (codec.find("cast") != std::string::npos) {
      continue;  // its sums round to bf16 on the way, which nobody owes
    }
    INFO(codec);
    const OuterRun run = coded(run_of(kWholeMean, 1, 1, 3, 1), codec);
    Ledger ledger;
    static_cast<void>(run_with(run, ledger));
    double owed = 0.0;
    for (const auto& [name, learned] : ledger.learned) {
      for (std::size_t i = 0; i < learned.size(); ++i) {
        const auto found = ledger.owed.find(name);
        const double rest = found == ledger.owed.end() ? 0.0 : found->second[i];
        owed = std::max(owed, std::abs(rest));
        // Anchors and weights round where they are near 1: three workers in three rounds.
        CHECK(std::abs(ledger.arrived.at(name)[i] + rest - learned[i]) < 9.0 * 2e-7);
      }
    }
    CHECK(owed > 1e-5);  // the codec does leave something out
  }
}

TEST_CASE("workers have the same anchor after compressed rounds on every layout") {
  const std::vector<std::tuple<int, int, int, int, const char*>> layouts = {{1, 1, 3, 1, "NNN"},
                                                                            {1, 2, 2, 1, "NNN"},
                                                                            {2, 1, 2, 1, "NNN"},
                                                                            {1, 1, 4, 2, "NNI"},
                                                                            {1, 2, 4, 2, "NII"},
                                                                            {2, 2, 4, 2, "III"},
                                                                            {1, 2, 4, 2, "NNN"}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto& [tensor, pipeline, data, group, letters] = layouts[i];
    for (std::size_t k = i; k < i + 3; ++k) {
      const std::string& codec = codecs()[k % codecs().size()];
      INFO(codec << ", tensor " << tensor << ", pipeline " << pipeline << ", data " << data << ", "
                 << letters);
      OuterRun run =
          coded(run_of(R"({"method": "co2", "period": 2})", tensor, pipeline, data, group), codec);
      run.mesh.parallel.data_strategy = *data_strategy_named(letters);
      run.mesh.global_batch = data % 3 == 0 ? 12 : 16;
      const OuterResult result = run_outer(run);
      for (std::size_t worker = 1; worker < result.anchors.size(); ++worker) {
        CHECK(tensor_differences("the anchor", result.anchors[worker], result.anchors[0]) == "");
      }
      CHECK(result.outer_bytes == bytes_of_rounds(run, 3));
    }
  }
}

TEST_CASE("ranks that end alike do not wait for codecs of a round that are gone") {
  for (const char* outer : {R"({"method": "co2", "period": 2})",
                            R"({"method": "diloco", "period": 4, "fragments": 2})"}) {
    OuterRun run = coded(run_of(outer, 1, 1, 3, 1), codecs()[2]);  // the second fragment travels
    run.mesh.global_batch = 12;
    run.is_left_early = true;
    const auto begin = std::chrono::steady_clock::now();
    CHECK(run_outer(run).rounds.size() == 3);
    run.codec.reset();
    CHECK(run_outer(run).rounds.size() == 3);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));  // a timeout has 60
  }
}

// With nothing left out but what rounding takes, training is as without a codec.
TEST_CASE("rounds in bf16 train as plain ones do") {
  const OuterRun plain = run_of(R"({"method": "diloco", "period": 2})", 1, 1, 2, 1);
  const OuterResult expected = run_outer(plain);
  const OuterResult result = run_outer(coded(plain, R"({"codec": "cast"})"));
  double apart = 0.0;
  double all = 0.0;
  for (const auto& [name, values] : expected.anchors[0]) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      apart += std::pow(double{result.anchors[0].at(name)[i]} - values[i], 2.0);
      all += std::pow(double{values[i]}, 2.0);
    }
  }
  CHECK(apart > 0.0);
  CHECK(std::sqrt(apart / all) < 1e-3);  // rounds move weights by a tenth, and bf16 has eight bits
}

}  // namespace slackline::testing
