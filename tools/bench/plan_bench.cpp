// How long it takes to choose codecs: a step of `p` stages and `m` micro-batches, whose transfers
// are as long as its passes, with four strengths for each class. Prints milliseconds (the median of
// five).
//
// usage: plan_bench

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "parallel/choose/plan_search.h"
#include "parallel/predict/timeline/retiming.h"
#include "parallel/predict/timeline/slack.h"
#include "parallel/predict/timeline/timeline.h"
#include "parallel/schedule/make_schedule.h"
#include "tools/bench/timing.h"

namespace slackline {

namespace {

using namespace schedule;  // NOLINT(google-build-using-namespace): a bench of this folder

constexpr int kRepeats = 5;

CostModel uneven_costs(const Schedule& schedule) {
  std::mt19937 generator(1);
  const auto around_one = [&] {
    return std::uniform_real_distribution<double>(0.8, 1.2)(generator);
  };
  CostModel costs;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    costs.chunks.push_back({.forward = {around_one()},
                            .backward_input = {around_one()},
                            .backward_weight = {around_one()},
                            .forward_bytes = {1000},
                            .backward_bytes = {1000},
                            .data_reduction = {{.at = 0.5, .seconds = {around_one()}},
                                               {.at = 1.0, .seconds = {around_one()}}}});
  }
  costs.link = {.latency = {0.01}, .bytes_per_second = 1000.0};
  costs.embedding_sync = {1.0};
  return costs;
}

template <typename Call>
double median_ms(const Call& call) {
  std::vector<double> milliseconds;
  milliseconds.reserve(kRepeats);
  for (int i = 0; i < kRepeats; ++i) {
    milliseconds.push_back(1e3 * seconds_of(call));
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds[kRepeats / 2];
}

void bench(int p, int m) {
  const Schedule schedule =
      make_schedule(Kind::one_f_one_b, {.num_ranks = p, .num_micro_batches = m});
  const CostModel costs = uneven_costs(schedule);
  std::vector<ClassChoices> classes;
  std::vector<TransferClass> members;
  for (const ClassSlack& row : class_slacks(make_timeline(schedule, costs))) {
    members.push_back(row.members);
    classes.push_back({.members = row.members,
                       .choices = {{.cost = {.share = 0.5, .encode = {0.01}}, .error = 0.1},
                                   {.cost = {.share = 0.25, .encode = {0.02}}, .error = 0.2},
                                   {.cost = {.share = 0.1, .encode = {0.03}}, .error = 0.4},
                                   {.cost = {.share = 0.05, .encode = {0.05}}, .error = 0.8}}});
  }
  const Retiming retiming(schedule, costs, members);
  const std::vector<ClassCost> plain(members.size());
  ChosenCodecs chosen;
  const ModelOf plain_model = [&](const Choices&) -> const CostModel& { return costs; };
  const double search = median_ms([&] { chosen = search_codecs(schedule, plain_model, classes); });
  const double timeline = median_ms([&] { static_cast<void>(make_timeline(schedule, costs)); });
  const double anew = median_ms([&] { static_cast<void>(retiming.step(plain)); });
  fmt::print("| {} | {} | {} | {:.1f} | {:.2f} | {:.3f} | {:.3f} |\n",
             p,
             m,
             classes.size(),
             search,
             timeline,
             anew,
             chosen.step / chosen.plain);
}

}  // namespace

}  // namespace slackline

int main() {
  std::puts(
      "| stages | micro-batches | classes | search ms | timeline ms | timed anew ms | step |");
  std::puts("|---|---|---|---|---|---|---|");
  for (const int p : {4, 8, 16, 32, 64}) {
    slackline::bench(p, 64);
  }
}
