#include "core/json_reader.h"

#include <array>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

using Catch::Contains;
using Catch::Equals;

JsonReader parse(std::string_view text) {
  return JsonReader::parse(text, "run.json");
}

// Returns what the reader says when `read` asks for something of `text`.
template <typename Read>
std::string refusal(std::string_view text, const Read& read) {
  return testing::refusal_of<ConfigError>([&] {
    JsonReader reader = parse(text);
    read(reader);
  });
}

std::string syntax_refusal(std::string_view text) {
  return refusal(text, [](JsonReader&) {});
}

std::string set_refusal(std::string_view text, std::string_view assignment) {
  return refusal(text, [&](JsonReader& reader) { reader.set(assignment); });
}

constexpr std::array<std::string_view, 2> kPrecisions = {"fp32", "bf16"};

constexpr std::string_view kRunWithTwoFiles =
    R"({"data": {"train": [{"path": "a"}, {"path": "b", "weight": 3}]}, "run": {"steps": 5}})";

// Reads keys in another order than the document's and with defaults; gives what was resolved.
std::string read_run(JsonReader& root) {
  JsonReader run = root.section("run");
  (void)run.integer("steps");
  (void)run.number("lr", {.default_value = 0.1});
  for (JsonReader& element : root.section("data").sections("train")) {
    (void)element.string("path");
    (void)element.number("weight", {.default_value = 1.0});
  }
  (void)root.choice("precision", kPrecisions, 0);
  return root.resolved();
}

}  // namespace

TEST_CASE("values of every kind are read, and absent keys take their defaults") {
  JsonReader root = parse(R"({"run": {"steps": 5, "dir": "a"}, "lr": 2, "clip": 0.5, "flag": true,
                              "split": [0.9, 0.1, 0], "layers": [1, 2], "precision": "bf16",
                              "words": ["a", "b"]})");
  JsonReader run = root.section("run");
  REQUIRE(run.integer("steps", {.min = 1}) == 5);
  REQUIRE(run.integer("keep", {.default_value = 2}) == 2);
  REQUIRE(run.string("dir") == "a");
  REQUIRE(run.string("name", "x") == "x");
  REQUIRE(root.number("lr") == 2.0);  // a number accepts an integer
  REQUIRE(root.number("clip") == 0.5);
  REQUIRE(root.number("eps", {.default_value = 1e-8}) == 1e-8);
  REQUIRE(root.boolean("flag"));
  REQUIRE_FALSE(root.boolean("other", false));
  REQUIRE(root.numbers("split", {}) == std::vector<double>{0.9, 0.1, 0.0});
  REQUIRE(root.integers("layers", {}) == std::vector<std::int64_t>{1, 2});
  REQUIRE(root.integers("chunks", {}, std::vector<std::int64_t>{7}) ==
          std::vector<std::int64_t>{7});
  REQUIRE(root.strings("words") == std::vector<std::string>{"a", "b"});
  REQUIRE(root.strings("more", std::vector<std::string>{}).empty());
  REQUIRE(root.choice("precision", kPrecisions) == 1);
  REQUIRE(root.choice("storage", kPrecisions, 0) == 0);
  root.finish();
  run.finish();
}

TEST_CASE("any value can be taken as JSON text, and maps give their keys in order") {
  JsonReader root = parse(R"({"b": {"x": [1, 2.0]}, "a": "s", "n": null})");
  REQUIRE(root.keys() == std::vector<std::string>{"b", "a", "n"});
  REQUIRE(root.json("b") == R"({"x":[1,2.0]})");
  REQUIRE(root.json("a") == R"("s")");
  REQUIRE(root.json("n").empty());
  REQUIRE(root.section("other").keys().empty());
}

TEST_CASE("a map of objects gives its members in order, each with its path, and objects alone") {
  JsonReader root = parse(R"({"map": {"b": {"x": 1}, "a": {}}, "mixed": {"c": {}, "n": null}})");
  auto items = root.section("map").items();
  REQUIRE(items.size() == 2);
  REQUIRE(items[0].first == "b");
  REQUIRE(items[0].second.integer("x") == 1);
  REQUIRE(items[1].first == "a");
  CHECK_THROWS_WITH(items[1].second.integer("x"), Contains("map.a.x: required key is missing"));
  CHECK_THROWS_WITH(root.section("mixed").items(), Contains("mixed.n: expected an object"));
  CHECK(root.section("other").items().empty());
  root.section("map").finish();
  CHECK_THAT(root.resolved(), Contains("\"b\""));
}

TEST_CASE("a long value is given as it stands, and only the supported one passes") {
  JsonReader root = parse(R"({"map": {"a": 1, "": 2}, "n": null, "type": "x"})");
  CHECK(root.given("map").size() == 2);
  CHECK_THAT(root.resolved(), !Contains("map"));
  CHECK_THROWS_WITH(root.given("n"), Equals("n: required key is missing"));
  root.only("type", R"("x")");
  root.only("absent", "0");
  root.finish();
  CHECK_THROWS_WITH(root.only("type", "true"), Equals(R"(type: only true is supported; got "x")"));
}

TEST_CASE("a negative zero is a number and no integer, as the reference of safetensors has it") {
  JsonReader root = parse(R"({"zero": -0})");
  CHECK_THROWS_WITH(root.integer("zero"), Contains("expected an integer"));
  CHECK(root.number("zero") == 0.0);
}

TEST_CASE("a null is the same as an absent key") {
  JsonReader root = parse(R"({"lr": null, "run": null})");
  REQUIRE_FALSE(root.has("lr"));
  REQUIRE(root.number("lr", {.default_value = 3.0}) == 3.0);
  REQUIRE(root.section("run").integer("keep", {.default_value = 1}) == 1);
}

TEST_CASE("a number may be turned off by a null, and absent is not off") {
  JsonReader reader = parse(R"({"on": 2.5, "off": null, "wrong": "x", "low": 0})");
  const NumberRule above_zero{.min = 0.0, .exclusive_min = true};
  CHECK(reader.number_or_null("on", above_zero, 1.0) == 2.5);
  CHECK(reader.number_or_null("off", above_zero, 1.0) == std::nullopt);
  CHECK(reader.number_or_null("absent", above_zero, 1.0) == 1.0);
  CHECK(reader.number_or_null("never", above_zero, std::nullopt) == std::nullopt);
  CHECK_THROWS_WITH(reader.number_or_null("wrong", above_zero, 1.0), Contains("wrong: expected"));
  CHECK_THROWS_WITH(reader.number_or_null("low", above_zero, 1.0), Contains("greater than 0"));
  CHECK_THAT(reader.resolved(), Contains("\"off\": null") && Contains("\"absent\": 1.0"));
}

TEST_CASE("syntax errors start with the source and give line and column") {
  CHECK_THAT(syntax_refusal("{\"a\": 1,\n  \"b\": oops}"),
             Contains("run.json: line 2, column 8") && Contains("invalid literal"));
  CHECK_THAT(syntax_refusal("{\"a\": 1"), Contains("line 1, column 8"));
  CHECK_THAT(syntax_refusal("{} {}"), Contains("run.json: line 1, column 4"));
  CHECK_THAT(syntax_refusal("{\"a\": 1} // note"), Contains("line 1, column 10"));
  CHECK_THAT(syntax_refusal(""), Contains("run.json: line 1, column 1"));
  CHECK_THAT(syntax_refusal("{\"a\": \"\xff\"}"), Contains("UTF-8"));
  CHECK_THAT(syntax_refusal(std::string_view("{}\0junk", 7)), Contains("column 3: NUL byte"));
  CHECK_THAT(syntax_refusal(std::string(200, '[')), Contains("deeper than 100 levels"));
}

TEST_CASE("duplicate keys are refused with their path, at any depth") {
  CHECK_THAT(syntax_refusal(R"({"a": 1, "a": 1})"), Equals("run.json: a: key given twice"));
  CHECK_THAT(syntax_refusal(R"({"data": {"train": [{}, {"path": 1, "path": 2}]}})"),
             Equals("run.json: data.train.1.path: key given twice"));
  CHECK_THAT(syntax_refusal(R"({"a": {"x": 1}, "b": {"x": 1}})"), Equals("accepted"));
}

TEST_CASE("NaN, infinity and numbers that overflow are refused") {
  CHECK_THAT(syntax_refusal(R"({"a": NaN})"), Contains("column 7: syntax error"));
  CHECK_THAT(syntax_refusal(R"({"a": Infinity})"), Contains("syntax error"));
  CHECK_THAT(syntax_refusal(R"({"a": 1e999})"), Contains("number out of range: 1e999"));
}

TEST_CASE("only an object may stand at the top") {
  CHECK_THAT(syntax_refusal("[1, 2]"), Equals("run.json: expected a JSON object; got [1,2]"));
}

TEST_CASE("a missing file is a config error that names it") {
  REQUIRE_THROWS_AS(JsonReader::parse_file("/nowhere/run.json"), ConfigError);
  REQUIRE_THROWS_WITH(JsonReader::parse_file("/nowhere/run.json"), Contains("/nowhere/run.json"));
  REQUIRE_THROWS_AS(JsonReader::parse_file("/tmp"), ConfigError);
  REQUIRE_THROWS_WITH(JsonReader::parse_file("/dev/zero"), Contains("larger than"));
}

TEST_CASE("a wrong type names the expected one and shows the value") {
  const auto of_lr = [](const auto& read) {
    return [read](JsonReader& root) { read(root.section("optimizer")); };
  };
  CHECK_THAT(refusal(R"({"optimizer": {"lr": "x"}})",
                     of_lr([](JsonReader section) { (void)section.number("lr"); })),
             Equals(R"(optimizer.lr: expected a number; got "x")"));
  CHECK_THAT(refusal(R"({"optimizer": {"lr": 1.0}})",
                     of_lr([](JsonReader section) { (void)section.integer("lr"); })),
             Equals("optimizer.lr: expected an integer; got 1.0"));
  CHECK_THAT(refusal(R"({"optimizer": {"lr": 1}})",
                     of_lr([](JsonReader section) { (void)section.boolean("lr"); })),
             Equals("optimizer.lr: expected true or false; got 1"));
  CHECK_THAT(refusal(R"({"optimizer": {"lr": 1}})",
                     of_lr([](JsonReader section) { (void)section.string("lr"); })),
             Equals("optimizer.lr: expected a string; got 1"));
  CHECK_THAT(refusal(R"({"optimizer": [1]})", of_lr([](const JsonReader&) {})),
             Equals("optimizer: expected an object; got [1]"));
  CHECK_THAT(
      refusal(R"({"split": [1, true]})", [](JsonReader& root) { (void)root.numbers("split", {}); }),
      Equals("split.1: expected a number; got true"));
  const auto names = [](JsonReader& root) { (void)root.strings("names"); };
  CHECK_THAT(refusal(R"({"names": "a"})", names),
             Equals("names: expected a list of strings; got \"a\""));
  CHECK_THAT(refusal(R"({"names": ["a", 1]})", names), Equals("names.1: expected a string; got 1"));
  CHECK_THAT(refusal("{}", names), Equals("names: required key is missing"));
  CHECK_THAT(refusal(R"({"data": [{}, 3]})", [](JsonReader& root) { (void)root.sections("data"); }),
             Equals("data.1: expected an object; got 3"));
}

TEST_CASE("a value out of range names the bound") {
  const auto integer = [](JsonReader& root) { (void)root.integer("n", {.min = 1, .max = 8}); };
  CHECK_THAT(refusal(R"({"n": 0})", integer), Equals("n: must be at least 1; got 0"));
  CHECK_THAT(refusal(R"({"n": 9})", integer), Equals("n: must be at most 8; got 9"));
  CHECK_THAT(refusal(R"({"n": 18446744073709551615})", integer),
             Equals("n: must be at most 8; got 18446744073709551615"));
  const auto number = [](JsonReader& root) {
    (void)root.number("n", {.min = 0.0, .max = 1.0, .exclusive_min = true});
  };
  CHECK_THAT(refusal(R"({"n": 0})", number), Equals("n: must be greater than 0; got 0"));
  CHECK_THAT(refusal(R"({"n": 1.5})", number), Equals("n: must be at most 1; got 1.5"));
}

TEST_CASE("a required key that is missing is named, in an absent section too") {
  CHECK_THAT(refusal("{}", [](JsonReader& root) { (void)root.section("run").string("dir"); }),
             Equals("run.dir: required key is missing"));
}

TEST_CASE("an unknown choice lists the names and gives the nearest") {
  const auto choose = [](JsonReader& root) { (void)root.choice("precision", kPrecisions); };
  CHECK_THAT(refusal(R"({"precision": "bf61"})", choose),
             Equals(R"(precision: must be one of fp32, bf16; nearest is "bf16"; got "bf61")"));
  CHECK_THAT(refusal(R"({"precision": "double"})", choose),
             Equals(R"(precision: must be one of fp32, bf16; got "double")"));
  CHECK_THAT(refusal(R"({"precision": 16})", choose),
             Equals("precision: must be one of fp32, bf16; got 16"));
}

TEST_CASE("an unknown key gives the nearest known one, or all of them") {
  const auto read = [](JsonReader& root) {
    JsonReader section = root.section("optimizer");
    (void)section.number("beta1", {.default_value = 0.9});
    (void)section.has("lr");
    section.finish();
  };
  CHECK_THAT(refusal(R"({"optimizer": {"lr": 1, "Beta": 0.5}})", read),
             Equals("optimizer.Beta: unknown key; nearest is optimizer.beta1; got 0.5"));
  CHECK_THAT(refusal(R"({"optimizer": {"momentum": 0.5}})", read),
             Equals("optimizer.momentum: unknown key; known here: beta1, lr; got 0.5"));
}

TEST_CASE("fail shows the value given, the default used, or that there is none") {
  JsonReader root = parse(R"({"heads": 3})");
  (void)root.integer("hidden", {.default_value = 64});
  REQUIRE_THROWS_WITH(root.fail("heads", "must divide hidden"),
                      Equals("heads: must divide hidden; got 3"));
  REQUIRE_THROWS_WITH(root.fail("hidden", "must be a multiple of heads"),
                      Equals("hidden: must be a multiple of heads; got 64 (the default)"));
  REQUIRE_THROWS_WITH(root.fail("ffn", "is needed here"),
                      Equals("ffn: is needed here; it is absent"));
}

TEST_CASE("assignments replace values, create objects and address list elements") {
  JsonReader root = parse(R"({"data": {"train": [{"path": "a"}]}, "lr": 1})");
  root.set("lr=0.5");
  root.set("run.dir=runs/a=b");
  root.set("run.steps=7");
  root.set("data.train.0.path=b");
  root.set("data.train.1.path=\"3\"");
  root.set("data.split=[1, 0, 0]");
  REQUIRE(root.number("lr") == 0.5);
  REQUIRE(root.section("run").string("dir") == "runs/a=b");
  REQUIRE(root.section("run").integer("steps") == 7);
  std::vector<JsonReader> train = root.section("data").sections("train");
  REQUIRE(train.size() == 2);
  REQUIRE(train[0].string("path") == "b");
  REQUIRE(train[1].string("path") == "3");
  REQUIRE(root.section("data").numbers("split", {}).size() == 3);
}

TEST_CASE("assignments that make no sense are refused") {
  CHECK_THAT(set_refusal("{}", "lr"), Equals("--set: expected KEY=VALUE; got lr"));
  CHECK_THAT(set_refusal("{}", "=1"), Equals("--set: expected KEY=VALUE; got =1"));
  std::string deep;
  for (int level = 0; level < 60000; ++level) {
    deep += "a.";
  }
  CHECK_THAT(set_refusal("{}", deep + "a=1"), Contains("--set: a key may have 100 parts; got a.a"));
  CHECK_THAT(set_refusal("{}", "a..b=1"), Contains("must be a key inside an object; got a..b=1"));
  CHECK_THAT(set_refusal(R"({"a": 1})", "a.b=1"), Contains("\"b\" must be a key inside an object"));
  CHECK_THAT(set_refusal(R"({"a": [1]})", "a.x=1"),
             Contains("\"x\" must be the number of a list element, 0 to 1"));
  CHECK_THAT(set_refusal(R"({"a": [1]})", "a.3=1"), Contains("0 to 1; got a.3=1"));
  CHECK_THAT(set_refusal("{}", "a={\"b\": }"), Contains("--set: value is not JSON: line 1"));
}

TEST_CASE("the resolved document holds defaults in reading order and reads back the same") {
  JsonReader root = parse(kRunWithTwoFiles);
  const std::string resolved = read_run(root);
  REQUIRE(resolved == root.section("run").resolved());  // every section gives the whole document
  REQUIRE(resolved == R"({
  "run": {
    "steps": 5,
    "lr": 0.1
  },
  "data": {
    "train": [
      {
        "path": "a",
        "weight": 1.0
      },
      {
        "path": "b",
        "weight": 3.0
      }
    ]
  },
  "precision": "fp32"
}
)");
  JsonReader again = parse(resolved);
  REQUIRE(read_run(again) == resolved);
}

TEST_CASE("a key that is left open is resolved where the document has it alone") {
  for (const bool given : {true, false}) {
    JsonReader root = parse(given ? R"({"a": 3})" : "{}");
    CHECK(root.integer("a", {.default_value = 1}) == (given ? 3 : 1));
    CHECK(root.integer("b", {.default_value = 2}) == 2);
    root.leave_open("a");
    root.finish();
    CHECK(root.resolved() == (given ? "{\n  \"a\": 3,\n  \"b\": 2\n}\n" : "{\n  \"b\": 2\n}\n"));
  }
}

TEST_CASE("known keys are all that was asked for, list elements once") {
  JsonReader root = parse(kRunWithTwoFiles);
  static_cast<void>(read_run(root));
  REQUIRE(root.known_keys() == std::vector<std::string>{"run",
                                                        "run.steps",
                                                        "run.lr",
                                                        "data",
                                                        "data.train",
                                                        "data.train[].path",
                                                        "data.train[].weight",
                                                        "precision"});
}

TEST_CASE("the nearest name is a typo away or none") {
  const std::vector<std::string> known = {"layers", "hidden", "heads", "lr"};
  REQUIRE(nearest_name("layer", known) == "layers");
  REQUIRE(nearest_name("hdiden", known) == "hidden");
  REQUIRE(nearest_name("LR", known) == "lr");
  REQUIRE_FALSE(nearest_name("vocab", known).has_value());
  REQUIRE_FALSE(nearest_name("x", {}).has_value());
}

}  // namespace slackline
