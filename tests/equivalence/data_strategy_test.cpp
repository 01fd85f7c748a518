// Strategies of the data axis give the numbers of one rank, and those that add in the same order
// the same bits, over schedules, tensor ranks, tied tables on one stage and on two, and groups.

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "tests/equivalence/bounds.h"
#include "tests/equivalence/distance.h"
#include "tests/equivalence/layouts.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

std::vector<Layout> layouts() {
  std::vector<Layout> list;
  const auto add = [&](const std::string& name, MeshRun run) -> MeshRun& {
    list.push_back({.name = name, .run = std::move(run)});
    return list.back().run;
  };
  add("2 x 2 data ranks", grouped_run(1, 1, 4, 2));
  add("3 data ranks, untied", grouped_run(1, 1, 3, 3)).model.tie_embeddings = false;
  list.back().run.global_batch = 12;
  add("groups of one", grouped_run(1, 2, 2, 1));
  add("pipeline", grouped_run(1, 2, 4, 2));
  MeshRun& all = add("tensor, pipeline, recompute, sequence parallel", grouped_run(2, 2, 2, 2));
  all.model.recompute = Recompute::block;
  all.parallel.sequence_parallel = true;
  add("untied pipeline", grouped_run(1, 2, 4, 2)).model.tie_embeddings = false;
  MeshRun& interleaved = add("interleaved", grouped_run(1, 2, 2, 2));
  interleaved.parallel.schedule = ScheduleName::interleaved;
  interleaved.parallel.chunks = 2;
  add("zb_h1", grouped_run(1, 2, 2, 1)).parallel.schedule = ScheduleName::zb_h1;
  add("one micro-batch", grouped_run(1, 1, 4, 2)).global_batch = 8;
  return list;
}

// Strategies whose sums of gradients have the same order.
std::string order_of(const DataStrategy& strategy) {
  return letters_of(strategy).substr(1, 1);
}

void require_strategies(const Layout& layout, const std::vector<DataStrategy>& strategies) {
  const MeshRunResult alone = run_mesh(on_one_rank(layout.run));
  std::map<std::string, MeshRunResult> of_order;
  of_order["N"] = run_mesh(layout.run);
  for (const DataStrategy& strategy : strategies) {
    INFO(layout.name << ", " << letters_of(strategy));
    MeshRun run = layout.run;
    run.parallel.data_strategy = strategy;
    const MeshRunResult result = run_mesh(run);
    CHECK(beyond(distance(result, alone), kFloatRounding) == "");
    const auto [same, is_first] = of_order.emplace(order_of(strategy), result);
    CHECK(bit_differences(result, same->second) == "");
  }
}

}  // namespace

TEST_CASE("each data strategy gives the numbers of one rank on some layout") {
  const std::vector<DataStrategy> all = all_data_strategies();
  const std::vector<Layout> list = layouts();
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::vector<DataStrategy> some;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if ((k + i) % 3 == 0) {
        some.push_back(all[k]);
      }
    }
    require_strategies(list[i], some);
  }
}

TEST_CASE("every data strategy gives the numbers of one rank on every layout", "[slow]") {
  for (const Layout& layout : layouts()) {
    require_strategies(layout, all_data_strategies());
  }
}

// Parameters alone are shared out: codecs sit on the one sum of gradients.
TEST_CASE("codecs on gradients give the bits of zero1 where parameters are shared out, too") {
  for (const char* codec : {R"({"codec": "cast"})", R"({"codec": "low_rank", "rank": 2})"}) {
    for (MeshRun run : {grouped_run(1, 1, 4, 0), grouped_run(2, 2, 2, 0)}) {
      run.model.tie_embeddings = run.parallel.pipeline == 1;
      run.compress = read_compress_config(JsonReader::parse(
          fmt::format(R"({{"policy": "all", "data_gradient": {}}})", codec), "test"));
      INFO(codec << ", pipeline " << run.parallel.pipeline);
      run.parallel.data_strategy = DataStrategy::zero1;
      const MeshRunResult expected = run_mesh(run);
      run.parallel.data_strategy = *data_strategy_named("GNG");
      CHECK(bit_differences(run_mesh(run), expected) == "");
    }
  }
}

// More ranks than some buckets have elements: shares of nothing.
TEST_CASE("data strategies run where a share is empty") {
  MeshRun run = grouped_run(1, 1, 48, 0);
  run.model = {.layers = 1, .hidden = 4, .heads = 1, .sequence = 4, .vocab = 11, .ffn = 8};
  run.steps = 2;
  run.global_batch = 48;
  run.micro_batch = 1;
  const MeshRunResult alone = run_mesh(on_one_rank(run));
  for (const char* letters : {"NNG", "GGG", "IIG"}) {
    INFO(letters);
    run.parallel.group = 4;
    run.parallel.data_strategy = *data_strategy_named(letters);
    CHECK(beyond(distance(run_mesh(run), alone), kFloatRounding) == "");
  }
}

TEST_CASE("data strategies give the bits of their order under bf16, too") {
  const std::vector<DataStrategy> all = all_data_strategies();
  const std::vector<Layout> list = layouts();
  for (std::size_t i = 0; i < list.size(); ++i) {
    MeshRun plain = list[i].run;
    plain.precision = DType::bf16;
    std::map<std::string, MeshRunResult> of_order;
    of_order["N"] = run_mesh(plain);
    for (std::size_t k = 0; k < all.size(); ++k) {
      if ((k + i) % 2 == 0) {
        continue;
      }
      INFO(list[i].name << ", " << letters_of(all[k]));
      MeshRun run = plain;
      run.parallel.data_strategy = all[k];
      const MeshRunResult result = run_mesh(run);
      const auto [same, is_first] = of_order.emplace(order_of(run.parallel.data_strategy), result);
      CHECK(bit_differences(result, same->second) == "");
    }
  }
}

}  // namespace slackline::testing
