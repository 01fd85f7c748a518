#include "tools/sweep/sweep_grid.h"

#include <set>

#include <fmt/format.h>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline {

using Catch::Contains;
using Catch::StartsWith;

namespace {

std::vector<std::string> points_of(std::string_view grid) {
  std::vector<std::string> texts;
  for (const SweepSettings& settings : expand_grid(grid)) {
    texts.push_back(point_text(settings));
  }
  return texts;
}

std::string refusal(std::string_view grid) {
  return testing::refusal_of<ConfigError>([&] { return expand_grid(grid); });
}

}  // namespace

TEST_CASE("a grid is every combination, the last key fastest, and grids follow each other") {
  CHECK(points_of(R"({"optimizer.lr": [0.1, 1e-3], "run.seed": [1, 2]})") ==
        std::vector<std::string>{"optimizer.lr=0.1, run.seed=1",
                                 "optimizer.lr=0.1, run.seed=2",
                                 "optimizer.lr=0.001, run.seed=1",
                                 "optimizer.lr=0.001, run.seed=2"});
  CHECK(points_of(R"([{"a.b": [null]}, {"a": [{"c": "d"}], "e": [true]}])") ==
        std::vector<std::string>{"a.b=null", R"(a={"c":"d"}, e=true)"});
}

TEST_CASE("a point's name depends on its settings alone and is a plain file name") {
  const SweepSettings settings = {{"optimizer.lr", "0.1"}, {"run.seed", "2"}};
  CHECK_THAT(point_name(settings), StartsWith("lr-0.1_seed-2-"));
  CHECK(point_name(settings) == point_name({settings[1], settings[0]}));
  CHECK(point_name({{"a", R"({"x":1,"y":2})"}}) == point_name({{"a", R"({"y":2,"x":1})"}}));

  std::set<std::string> names;
  for (const char* value :
       {"\"a/b\"", "\"a b\"", "\"../..\"", "\"a\\nb\"", "\"\"", "[1,2]", "12"}) {
    const std::string name = point_name({{"data.train.0.path", value}});
    INFO(name);
    CHECK_THAT(name, StartsWith("path-"));
    CHECK(name.find_first_of("/ \n\"") == std::string::npos);
    CHECK(names.insert(name).second);
  }
  const std::string many(1000, 'x');
  CHECK(point_name({{"a", fmt::format("\"{}\"", many)}}).size() < 80);
}

TEST_CASE("grids without a point, or with one twice, are refused with where and what to do") {
  CHECK_THAT(refusal("{}"), StartsWith("grid: must vary at least one key"));
  CHECK_THAT(refusal("[]"), StartsWith("grid: must hold at least one grid"));
  CHECK_THAT(refusal("[{}]"), StartsWith("grid.0: must vary at least one key"));
  CHECK_THAT(refusal("3"), StartsWith("grid: must be an object of keys"));
  CHECK_THAT(refusal(R"({"run.seed": []})"),
             StartsWith("grid.run.seed: must list at least one value"));
  CHECK_THAT(refusal(R"({"run.seed": 3})"),
             StartsWith("grid.run.seed: must be a list of values; nearest is [3]; got 3"));
  CHECK_THAT(refusal(R"({"run": {"seed": [1, 2]}})"), Contains("dotted"));
  CHECK_THAT(refusal(R"({"run.seed": [1, 2, 1]})"),
             StartsWith("grid: gives a point twice; leave one out; got run.seed=1"));
  CHECK_THAT(refusal(R"([{"run.seed": [1]}, {"run.seed": [1, 2]}])"), Contains("run.seed=1"));
}

TEST_CASE("points of equal numbers are the same however they are written, and keep their names") {
  CHECK_THAT(refusal(R"({"optimizer.lr": [1, 1.0]})"),
             StartsWith("grid: gives a point twice; leave one out; got optimizer.lr=1.0"));
  CHECK_THAT(refusal(R"([{"a": [{"x": [2.0], "y": 3}], "b": [0]},
                         {"b": [0.0], "a": [{"y": 3e0, "x": [2]}]}])"),
             StartsWith("grid: gives a point twice"));
  CHECK(points_of(R"({"a": [1, true, "1", [1], 1.5, null]})").size() == 6);
  CHECK(point_name({{"optimizer.lr", "1"}}) != point_name({{"optimizer.lr", "1.0"}}));
}

TEST_CASE("grids that are too large, own run.dir or set a key twice are refused") {
  CHECK_THAT(refusal(R"({"run.dir": ["a", "b"]})"), StartsWith("grid.run.dir: the sweep gives"));
  CHECK_THAT(refusal(R"({"run": [{"dir": "a", "steps": 1}]})"), StartsWith("grid.run: the sweep"));
  CHECK_THAT(refusal(R"({"compress": [null], "compress.policy": ["all"]})"),
             StartsWith("grid.compress: holds \"compress.policy\", which is varied too"));
  CHECK_THAT(refusal(R"({"": [1]})"), Contains("must be a dotted key"));
  CHECK_THAT(refusal(R"({"a=b": [1]})"), Contains("must be a dotted key"));
  std::string values = "0";
  for (int i = 1; i < 101; ++i) {
    values += fmt::format(", {}", i);
  }
  CHECK_THAT(refusal(fmt::format(R"({{"a": [{}], "b": [{}]}})", values, values)),
             StartsWith("grid: must have at most 10000 points"));
  std::string keys = R"("k0": [0])";
  for (int i = 1; i < 65; ++i) {
    keys += fmt::format(R"(, "k{}": [0])", i);
  }
  CHECK_THAT(refusal("{" + keys + "}"), StartsWith("grid: must vary at most 64 keys; got 65"));
}

}  // namespace slackline
