// The binary under mpirun gives, on every layout, what it gives with ranks as threads, and that is
// what one rank gives: the same bits where only the pipeline differs, rounding elsewhere.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/mpi_job.h"

namespace slackline {

namespace {

using testing::require_done;

// Bounds how far the loss is from one rank's: what is promised for any layout in fp32.
constexpr double kLossBound = 1e-6;
// Bounds the gradient norm alike: tests/equivalence/bounds.h has the reason and the figures.
constexpr double kNormBound = 4e-6;

struct Layout {
  std::string name{};
  int ranks = 1;
  std::vector<std::string> parallel{};  // "tensor=2": keys under parallel

  [[nodiscard]] std::vector<std::string> assignments(const TrainingRun& run,
                                                     const std::string& directory) const {
    std::vector<std::string> all = {"run.dir=" + run.path(directory),
                                    "run.steps=5",
                                    "model.layers=4",
                                    "model.heads=4",
                                    "batch.micro=1",
                                    "optimizer.lr=1e-3"};
    for (const std::string& assignment : parallel) {
      all.push_back("parallel." + assignment);
    }
    return all;
  }
};

const std::vector<Layout>& pipelines() {
  static const std::vector<Layout> layouts = {
      {"gpipe", 2, {"pipeline=2", "schedule=gpipe"}},
      {"1f1b", 4, {"pipeline=4", "schedule=1f1b"}},
      {"uneven", 2, {"pipeline=2", "stage_layers=[1,3]", "transfers=blocking"}},
      {"interleaved",
       2,
       {"pipeline=2", "schedule=interleaved", "chunks=2", "embedding_sync=separate"}},
      {"zero_bubble", 4, {"pipeline=4", "schedule=zb_h1"}},
  };
  return layouts;
}

const std::vector<Layout>& meshes() {
  static const std::vector<Layout> layouts = {
      {"tensor", 2, {"tensor=2"}},
      {"sequence", 4, {"tensor=4", "sequence_parallel=true"}},
      {"data", 4, {"data=4"}},
      {"groups", 4, {"data=4", "group=2"}},
      {"zero1", 2, {"data=2", "data_strategy=zero1"}},
      {"tensor_pipeline", 4, {"tensor=2", "pipeline=2", "schedule=zb_h1"}},
      {"pipeline_zero1", 4, {"pipeline=2", "data=2", "data_strategy=zero1", "schedule=gpipe"}},
      {"cube",
       8,
       {"tensor=2", "pipeline=2", "data=2", "sequence_parallel=true", "data_strategy=zero1"}},
      {"separate",
       8,
       {"tensor=2",
        "pipeline=2",
        "data=2",
        "schedule=interleaved",
        "chunks=2",
        "embedding_sync=separate"}},
  };
  return layouts;
}

// Under mpirun, and with ranks as threads; requires the same numbers of both.
void train_both_ways(const TrainingRun& run, const Layout& layout) {
  const std::string threads = layout.name + "_threads";
  const ProcessResult result =
      require_done(run_mpi(run, layout.ranks, layout.assignments(run, layout.name)));
  REQUIRE(count_lines(result.out, "\033") == 0);  // mpirun's output is no terminal
  require_done(
      run.train(layout.assignments(run, threads), {"--ranks", std::to_string(layout.ranks)}));
  for (const char* field : {"loss", "grad_norm", "eval_loss"}) {
    INFO(field);
    REQUIRE_FALSE(run.metric(field, layout.name).empty());
    REQUIRE(run.metric(field, layout.name) == run.metric(field, threads));
  }
  REQUIRE(run.weights_sha256(run.checkpoint(5, layout.name)) ==
          run.weights_sha256(run.checkpoint(5, threads)));
}

double largest_difference(const std::vector<double>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(values[i] - expected[i]) / std::abs(expected[i]));
  }
  return largest;
}

}  // namespace

TEST_CASE("under mpirun a pipeline gives the bits of one rank") {
  const TrainingRun run;
  require_done(run.train(Layout{}.assignments(run, "one")));
  for (const Layout& layout : pipelines()) {
    INFO(layout.name);
    train_both_ways(run, layout);
    for (const char* field : {"loss", "grad_norm", "eval_loss"}) {
      REQUIRE(run.metric(field, layout.name) == run.metric(field, "one"));
    }
    for (const int step : {3, 5}) {
      REQUIRE(run.weights_sha256(run.checkpoint(step, layout.name)) ==
              run.weights_sha256(run.checkpoint(step, "one")));
    }
  }
}

TEST_CASE("under mpirun every mesh gives the bits of its ranks as threads, and one rank's loss") {
  const TrainingRun run;
  require_done(run.train(Layout{}.assignments(run, "one")));
  for (const Layout& layout : meshes()) {
    INFO(layout.name);
    train_both_ways(run, layout);
    CHECK(largest_difference(run.metric("loss", layout.name), run.metric("loss", "one")) <=
          kLossBound);
    CHECK(largest_difference(run.metric("grad_norm", layout.name),
                             run.metric("grad_norm", "one")) <= kNormBound);
  }
}

}  // namespace slackline
