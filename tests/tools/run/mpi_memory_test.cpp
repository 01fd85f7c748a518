// What compression takes is in the plan of a run's memory. Ranks are processes, and the peak of a
// launcher that waited for them is that of the largest.

#include <algorithm>
#include <limits>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/mpi_job.h"

namespace slackline {

namespace {

using testing::require_done;

constexpr int kRanks = 4;

struct Peak {
  // The program itself apart, which each command measures anew and rounds up to 4 MiB: two plans of
  // one program differ where its pages lie about a multiple.
  double planned = 0.0;
  double measured = 0.0;
};

// The largest number that a plan has behind these words.
double largest(const std::string& plan, const std::string& key) {
  double most = 0.0;
  for (std::size_t at = plan.find(key); at != std::string::npos; at = plan.find(key, at + 1)) {
    most = std::max(most, std::stod(plan.substr(at + key.size())));
  }
  return most;
}

// Measured is the least of three runs: beside other work one has taken 1.6 MB more.
Peak peak_of(const TrainingRun& run,
             const std::string& name,
             std::vector<std::string> assignments) {
  assignments.insert(assignments.end(),
                     {"parallel.pipeline=2",
                      "parallel.data=2",
                      "batch.micro=1",
                      "model.dropout=0",
                      "run.steps=2",
                      "run.eval_every=0"});
  double least = std::numeric_limits<double>::infinity();
  for (const char* turn : {"-1", "-2", "-3"}) {
    const ProcessResult trained =
        require_done(run_mpi(run, kRanks, with(assignments, {"run.dir=" + run.path(name + turn)})));
    least = std::min(least, static_cast<double>(trained.peak_bytes));
  }
  write_file_atomically(run.path("resolved.json"), run.train(assignments, {"--print-config"}).out);
  const ProcessResult plan = run_slackline({"plan", run.path("resolved.json"), "--json"});
  const double program = largest(plan.out, "\"program and libraries\", \"bytes\": ");
  REQUIRE(program > 0.0);
  return {.planned = largest(plan.out, "\"memory_bytes\": ") - program, .measured = least};
}

}  // namespace

// MPI's own memory is not in the plan, and depends on the sizes of messages: 15 to 30 MB of a rank
// here. So two runs are compared whose messages are the same.
TEST_CASE("error feedback takes the memory that the plan says, within 3 %") {
  const TrainingRun run;
  const auto [gradients, boundary] = GENERATE(table<std::string, std::string>(
      {{R"("codec": "low_rank", "rank": 64)", R"("codec": "low_rank", "rank": 8)"},
       {R"("codec": "top_k", "ratio": 0.01)", R"("codec": "top_k", "ratio": 0.1)"}}));
  const auto peak_with = [&, gradients = gradients, boundary = boundary](
                             const std::string& on_gradients, const std::string& on_boundary) {
    const std::string key = R"(, "error_feedback": ")";
    return peak_of(run,
                   on_gradients,
                   {"model.layers=4",
                    "model.hidden=512",
                    "model.heads=8",
                    "compress.policy=all",
                    "compress.data_gradient={" + gradients + key + on_gradients + "\"}",
                    "compress.pipeline_backward={" + boundary + key + on_boundary + "\"}"});
  };
  INFO(gradients);
  const Peak without = peak_with("none", "none");
  const Peak with = peak_with("immediate", "lazy");
  const double planned = with.planned - without.planned;
  // A residual of every weight, and its staged copy.
  REQUIRE(planned > 0.2 * without.planned);
  // 50 MB. Whole pages, and what malloc keeps of them, made 0.1 to 0.5 MB more.
  REQUIRE(with.measured - without.measured == Approx(planned).epsilon(0.03));
}

}  // namespace slackline
