#include "parallel/choose/plan_search.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "parallel/predict/timeline/retiming.h"
#include "parallel/predict/timeline/slack.h"
#include "parallel/predict/timeline/timeline.h"
#include "parallel/schedule/make_schedule.h"
#include "tests/parallel/uniform_costs.h"
#include "tests/support/catch.h"

namespace slackline::schedule::testing {

namespace {

constexpr TransferClass gradients_of(int stage) {
  return {.site = Site::data_gradient, .stage = stage, .phase = Phase::step};
}

Schedule one_f_one_b(int p, int m) {
  return make_schedule(Kind::one_f_one_b, {.num_ranks = p, .num_micro_batches = m});
}

std::vector<TransferClass> classes_of(const Schedule& schedule, const CostModel& costs) {
  std::vector<TransferClass> classes;
  for (const ClassSlack& row : class_slacks(make_timeline(schedule, costs))) {
    if (row.members.site != Site::parameter_gather) {
      classes.push_back(row.members);
    }
  }
  return classes;
}

std::vector<ClassChoices> offer(const std::vector<TransferClass>& classes,
                                const std::vector<CodecChoice>& choices) {
  std::vector<ClassChoices> list;
  list.reserve(classes.size());
  for (const TransferClass& members : classes) {
    list.push_back({.members = members, .choices = choices});
  }
  return list;
}

CostModel with(CostModel costs,
               const std::vector<ClassChoices>& classes,
               const std::vector<std::optional<std::size_t>>& choices) {
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (choices[i]) {
      costs.compressed[classes[i].members] = classes[i].choices[*choices[i]].cost;
    }
  }
  return costs;
}

// Without classes of passes, by the costs without codecs.
ChosenCodecs searched(const Schedule& schedule,
                      const CostModel& plain,
                      const std::vector<ClassChoices>& classes,
                      const SearchLimits& limits = {}) {
  return search_codecs(
      schedule, [&](const Choices&) { return plain; }, classes, limits);
}

class RandomSteps {
 public:
  explicit RandomSteps(unsigned seed) : generator_(seed) {}

  double draw(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(generator_);
  }

  int draw_int(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(generator_);
  }

  Schedule schedule() {
    const Kind kinds[] = {Kind::gpipe, Kind::one_f_one_b, Kind::zb_h1};
    return make_schedule(
        kinds[draw_int(0, 2)],
        {.num_ranks = draw_int(2, 3),
         .num_micro_batches = draw_int(1, 4),
         .transfers = draw_int(0, 3) == 0 ? Transfers::blocking : Transfers::asynchronous});
  }

  CostModel costs(const Schedule& schedule) {
    CostModel costs = uniform_costs(schedule.num_stages(), {});
    const double slow = draw(0.2, 3.0);
    for (ChunkCosts& chunk : costs.chunks) {
      chunk = {.forward = {draw(0.5, 1.5)},
               .backward_input = {draw(0.5, 1.5)},
               .backward_weight = {draw(0.5, 1.5)},
               .forward_bytes = {static_cast<std::size_t>(draw(100.0, 900.0))},
               .backward_bytes = {static_cast<std::size_t>(draw(100.0, 900.0))},
               .data_reduction = {bucket(0.4), bucket(1.0)}};
    }
    costs.link = {.latency = {draw(0.0, 0.2)},
                  .bytes_per_second = 1000.0 / slow,
                  .duplex = draw_int(0, 1) == 0 ? Duplex::half : Duplex::full};
    costs.embedding_sync = {draw(0.1, 1.0)};
    costs.optimizer = {draw(0.0, 0.5)};
    costs.codecs_take_compute = draw_int(0, 2) == 0;
    return costs;
  }

  Bucket bucket(double at) {
    const int sum = draw_int(1, 2);
    return {.at = at,
            .seconds = {draw(0.1, 2.0)},
            .exchanges = {.latency = {0.05}, .plain = draw_int(1, sum), .sum = sum}};
  }

  Rounds rounds() {
    return draw_int(0, 2) == 0 ? Rounds{.gathers = 1} : Rounds{.sums = draw_int(1, 2)};
  }

  // At most ten classes, each with one or two choices.
  std::vector<ClassChoices> choices(const Schedule& schedule, const CostModel& costs) {
    std::vector<TransferClass> classes = classes_of(schedule, costs);
    std::shuffle(classes.begin(), classes.end(), generator_);
    classes.resize(std::min<std::size_t>(classes.size(), 10));
    std::vector<ClassChoices> list;
    for (const TransferClass& members : classes) {
      ClassChoices& row = list.emplace_back(ClassChoices{.members = members});
      const int count = classes.size() > 7 ? 1 : draw_int(1, 2);
      for (int i = 0; i < count; ++i) {
        row.choices.push_back({.cost = {.share = draw(0.05, 0.6),
                                        .rounds = rounds(),
                                        .encode = {draw(0.0, 0.3)},
                                        .decode = {draw(0.0, 0.3)}},
                               .error = draw(0.1, 1.0)});
      }
    }
    return list;
  }

 private:
  std::mt19937 generator_;
};

// Returns the shortest step of all combinations.
Seconds exhaustive(const Schedule& schedule,
                   const CostModel& plain,
                   const std::vector<ClassChoices>& classes,
                   std::vector<std::optional<std::size_t>>& choices,
                   std::size_t next = 0) {
  if (next == classes.size()) {
    return make_timeline(schedule, with(plain, classes, choices)).step;
  }
  choices[next].reset();
  Seconds best = exhaustive(schedule, plain, classes, choices, next + 1);
  for (std::size_t i = 0; i < classes[next].choices.size(); ++i) {
    choices[next] = i;
    best = std::min(best, exhaustive(schedule, plain, classes, choices, next + 1));
  }
  choices[next].reset();
  return best;
}

// A class' error is its time on the links.
void weigh(std::vector<ClassChoices>& classes, const Schedule& schedule, const CostModel& plain) {
  for (const ClassSlack& row : class_slacks(make_timeline(schedule, plain))) {
    for (ClassChoices& members : classes) {
      if (members.members == row.members) {
        members.choices[0].error = row.seconds.value;
      }
    }
  }
}

double error_of(const std::vector<ClassChoices>& classes, const ChosenCodecs& chosen) {
  double error = 0.0;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    error += chosen.choices[i] ? classes[i].choices[*chosen.choices[i]].error : 0.0;
  }
  return error;
}

void speed_up(CostModel& costs, double factor) {
  costs.link.bytes_per_second *= factor;
  costs.embedding_sync = (1.0 / factor) * costs.embedding_sync;
  for (ChunkCosts& chunk : costs.chunks) {
    for (Bucket& bucket : chunk.data_reduction) {
      bucket.seconds = (1.0 / factor) * bucket.seconds;
    }
  }
}

}  // namespace

TEST_CASE("gradients that are hidden stay plain, those that the step waits for are compressed") {
  // F0 F1 | B0 B1: stage 1 ends 2 s before stage 0 and hides its second; stage 0 exposes all 4.
  const Schedule schedule = one_f_one_b(2, 1);
  CostModel costs =
      uniform_costs(2, {.forward = {1.0}, .backward_input = {1.0}, .backward_weight = {1.0}});
  costs.chunks[0].data_reduction = {{.at = 1.0, .seconds = {4.0}}};
  costs.chunks[1].data_reduction = {{.at = 1.0, .seconds = {1.0}}};
  const CodecChoice quarter{.cost = {.share = 0.25, .encode = {0.5}, .decode = {0.25}}};
  const ChosenCodecs chosen =
      searched(schedule, costs, offer({gradients_of(0), gradients_of(1)}, {quarter}));
  CHECK(chosen.plain.value == Approx(10.0));
  CHECK(chosen.step.value == Approx(6.0 + 1.0 + 0.75));
  CHECK(chosen.choices[0] == 0U);
  CHECK_FALSE(chosen.choices[1]);
}

TEST_CASE("tied critical paths are cut together, though no class of them gains anything alone") {
  const Schedule schedule = one_f_one_b(2, 1);
  CostModel costs =
      uniform_costs(2, {.forward = {1.0}, .backward_input = {1.0}, .backward_weight = {1.0}});
  costs.chunks[0].data_reduction = {{.at = 1.0, .seconds = {4.0}}};
  costs.chunks[1].data_reduction = {{.at = 1.0, .seconds = {6.0}}};
  const CodecChoice half{.cost = {.share = 0.5}, .error = 1.0};
  const ChosenCodecs chosen =
      searched(schedule, costs, offer({gradients_of(0), gradients_of(1)}, {half}));
  CHECK(chosen.plain.value == Approx(10.0));
  CHECK(chosen.step.value == Approx(8.0));
  CHECK(chosen.choices[0] == 0U);
  CHECK(chosen.choices[1] == 0U);
}

TEST_CASE("of strengths that hide a transfer the one with the least error is taken") {
  const Schedule schedule = one_f_one_b(2, 1);
  CostModel costs =
      uniform_costs(2, {.forward = {1.0}, .backward_input = {1.0}, .backward_weight = {1.0}});
  costs.chunks[1].data_reduction = {{.at = 1.0, .seconds = {4.0}}};  // 2 of them are hidden
  const std::vector<CodecChoice> strengths{{.cost = {.share = 0.1}, .error = 4.0},
                                           {.cost = {.share = 0.4}, .error = 2.0},
                                           {.cost = {.share = 0.9}, .error = 1.0}};
  const ChosenCodecs chosen = searched(schedule, costs, offer({gradients_of(1)}, strengths));
  CHECK(chosen.choices[0] == 1U);
  CHECK(chosen.step.value == Approx(6.0));
}

TEST_CASE("messages that share a link: compressing one makes room for the others") {
  // Half duplex: the gradients of micro-batch 0 wait behind the activations of micro-batch 1.
  const Schedule schedule = one_f_one_b(2, 2);
  CostModel costs = uniform_costs(2,
                                  {.forward = {1.0},
                                   .backward_input = {0.5},
                                   .backward_weight = {0.5},
                                   .forward_bytes = {1000},
                                   .backward_bytes = {1000}});
  costs.link = {.bytes_per_second = 500.0, .duplex = Duplex::half};
  const std::vector<TransferClass> backward{{Site::pipeline_backward, 1, Phase::steady},
                                            {Site::pipeline_backward, 1, Phase::cooldown}};
  const CodecChoice tenth{.cost = {.share = 0.1}, .error = 1.0};
  const ChosenCodecs chosen = searched(schedule, costs, offer(backward, {tenth}));
  // Activations arrive at 3 and, received from 4 on, at 6; gradients are ready at 5 and 8, wait for
  // the link, and arrive at 8 and 10; or at 6.2 and 8.2.
  CHECK(chosen.plain.value == Approx(11.0));
  CHECK(chosen.step.value == Approx(9.2));
  CHECK(chosen.choices[0] == 0U);
  CHECK(chosen.choices[1] == 0U);
}

TEST_CASE("what gains less than a hundredth of the step stays plain") {
  const Schedule schedule = one_f_one_b(1, 1);
  CostModel costs = uniform_costs(1, {.forward = {10.0}, .backward_input = {10.0}});
  costs.chunks[0].data_reduction = {{.at = 1.0, .seconds = {0.19}}};
  const CodecChoice best{.cost = {.share = 0.0}};
  CHECK_FALSE(searched(schedule, costs, offer({gradients_of(0)}, {best})).choices[0]);
  costs.chunks[0].data_reduction[0].seconds = {0.21};
  CHECK(searched(schedule, costs, offer({gradients_of(0)}, {best})).choices[0] == 0U);
}

TEST_CASE("latencies do not shrink, and further rounds pay them again") {
  const Schedule schedule = one_f_one_b(1, 1);
  CostModel costs = uniform_costs(1, {.forward = {1.0}});
  costs.chunks[0].data_reduction = {{.at = 1.0, .seconds = {0.1}, .exchanges = {.latency = {0.9}}}};
  const CodecChoice once{.cost = {.share = 0.0}};
  const CodecChoice twice{.cost = {.share = 0.0, .rounds = Rounds{.sums = 2}}};
  CHECK(searched(schedule, costs, offer({gradients_of(0)}, {once})).step.value == Approx(1.9));
  CHECK_FALSE(searched(schedule, costs, offer({gradients_of(0)}, {twice})).choices[0]);
}

TEST_CASE("the search is at most 1 % slower than the best of all combinations") {
  RandomSteps random(2024);
  for (int graph = 0; graph < 300; ++graph) {
    const Schedule schedule = random.schedule();
    const CostModel costs = random.costs(schedule);
    const std::vector<ClassChoices> classes = random.choices(schedule, costs);
    std::vector<std::optional<std::size_t>> choices(classes.size());
    const Seconds best = exhaustive(schedule, costs, classes, choices);
    const ChosenCodecs chosen = searched(schedule, costs, classes, {.least_gain = 0.0});
    INFO("graph " << graph << ", classes " << classes.size());
    CHECK(make_timeline(schedule, with(costs, classes, chosen.choices)).step == chosen.step);
    CHECK(chosen.step.value <= 1.01 * best.value);
  }
}

TEST_CASE("where links keep their order, a step timed anew is the timeline's") {
  RandomSteps random(5);
  for (int graph = 0; graph < 100; ++graph) {
    const Schedule schedule =
        make_schedule(random.draw_int(0, 1) == 0 ? Kind::one_f_one_b : Kind::gpipe,
                      {.num_ranks = 3, .num_micro_batches = random.draw_int(2, 6)});
    CostModel costs = random.costs(schedule);
    costs.link.duplex = Duplex::full;  // a direction then has one kind of message, in order
    const std::vector<TransferClass> classes = classes_of(schedule, costs);
    const Retiming retiming(schedule, costs, classes);
    std::vector<ClassCost> changed;
    CostModel anew = costs;
    const Seconds encode{random.draw(0.0, 0.2)};  // the same for all: none overtakes another
    for (const TransferClass& members : classes) {
      changed.push_back({.share = random.draw(0.1, 1.0),
                         .rounds = random.rounds(),
                         .encode = encode,
                         .decode = {random.draw(0.0, 0.2)}});
      anew.compressed[members] = changed.back();
    }
    INFO("graph " << graph);
    const double step = make_timeline(schedule, anew).step.value;
    CHECK(retiming.step(changed).value == Approx(step).epsilon(1e-9));
  }
}

TEST_CASE("a step timed anew has the exchanges of other codecs, and waits for links that serve") {
  const Schedule schedule = one_f_one_b(1, 1);
  CostModel costs = uniform_costs(1, {.forward = {1.0}, .backward_input = {1.0}});
  const Exchanges sum{.latency = {3.0}, .plain = 2, .sum = 2};
  costs.chunks[0].data_reduction = {{.at = 0.5, .seconds = {1.0}, .exchanges = sum},
                                    {.at = 1.0, .seconds = {1.0}, .exchanges = sum}};
  const Retiming retiming(schedule, costs, {gradients_of(0)});
  for (const Rounds& rounds :
       {Rounds{.plain = 1}, Rounds{}, Rounds{.gathers = 1}, Rounds{.sums = 2}}) {
    for (const double share : {0.0, 0.25, 1.0}) {
      for (const double encode : {0.0, 0.5, 4.0}) {
        const ClassCost cost{
            .share = share, .rounds = rounds, .encode = {encode}, .decode = {0.25}};
        CostModel anew = costs;
        anew.compressed[gradients_of(0)] = cost;
        INFO(share << " of the bytes, encoded in " << encode);
        CHECK(retiming.step({cost}).value ==
              Approx(make_timeline(schedule, anew).step.value).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("a large step is searched as well as a small one") {
  RandomSteps random(77);
  for (int graph = 0; graph < 10; ++graph) {
    const Schedule schedule = one_f_one_b(4, 32);  // more ops than are simulated
    CostModel costs = random.costs(schedule);
    const std::vector<ClassChoices> classes =
        offer(classes_of(schedule, costs),
              {{.cost = {.share = 0.1, .encode = {0.02}}, .error = 2.0},
               {.cost = {.share = 0.5, .encode = {0.01}}, .error = 1.0}});
    std::vector<std::optional<std::size_t>> all(classes.size(), 0U);
    const ChosenCodecs chosen = searched(schedule, costs, classes, {.least_gain = 0.0});
    CHECK(make_timeline(schedule, with(costs, classes, chosen.choices)).step == chosen.step);
    CHECK(chosen.step <= chosen.plain);
    CHECK(chosen.step.value <=
          1.01 * make_timeline(schedule, with(costs, classes, all)).step.value);
  }
}

// With stages of different lengths it may: a faster link can leave the path that waited longest for
// it behind one that waits less and computes more.
TEST_CASE("with equal stages a faster link never adds compression") {
  for (const auto& [p, m] : {std::pair{2, 1}, {2, 4}, {3, 3}, {3, 6}, {4, 4}, {4, 8}}) {
    for (const Transfers transfers : {Transfers::asynchronous, Transfers::blocking}) {
      const Schedule schedule = make_schedule(
          Kind::one_f_one_b, {.num_ranks = p, .num_micro_batches = m, .transfers = transfers});
      CostModel costs = uniform_costs(
          p,
          {.forward = {1.0},
           .backward_input = {1.0},
           .backward_weight = {1.0},
           .forward_bytes = {1000},
           .backward_bytes = {1000},
           .data_reduction = {{.at = 0.5, .seconds = {20.0}}, {.at = 1.0, .seconds = {20.0}}}});
      costs.link = {.latency = {0.001}, .bytes_per_second = 100.0};
      costs.embedding_sync = {10.0};
      std::vector<ClassChoices> classes =
          offer(classes_of(schedule, costs), {{.cost = {.share = 0.1, .encode = {0.02}}}});
      weigh(classes, schedule, costs);
      double before = 1e9;
      for (int speed = 0; speed < 40; ++speed) {
        const double error = error_of(classes, searched(schedule, costs, classes));
        INFO("p " << p << " m " << m << " speed " << speed);
        CHECK(error <= before);
        before = error;
        speed_up(costs, 1.25);
      }
      CHECK(before == 0.0);
    }
  }
}

}  // namespace slackline::schedule::testing
