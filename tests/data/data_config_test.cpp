#include "data/data_config.h"

#include "core/error.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

DataConfig read(const std::string& json) {
  return read_data_config(JsonReader::parse(json, "test"), {0.5, 0.25, 0.25});
}

void refuses(const std::string& json, const std::string& why) {
  CAPTURE(json);
  REQUIRE_THROWS_AS(read(json), ConfigError);
  REQUIRE_THROWS_WITH(read(json), Catch::Contains(why));
}

}  // namespace

TEST_CASE("the data section reads with its defaults") {
  const DataConfig config = read(R"({"train": [{"path": "a"}, {"path": "b"}]})");
  REQUIRE(config.train.size() == 2);
  REQUIRE_FALSE(config.train[0].weight);
  REQUIRE(config.train[1].path == "b");
  REQUIRE(config.split == Split{0.5, 0.25, 0.25});
  REQUIRE_FALSE(config.given_split);
  REQUIRE(config.valid.empty());
}

TEST_CASE("weights are given for all data sets of a list or for none") {
  const DataConfig config = read(R"({"train": [{"path": "a", "weight": 1},
                                               {"path": "b", "weight": 2.5}],
                                     "valid": [{"path": "c"}, {"path": "d"}]})");
  REQUIRE(config.train[0].weight == 1.0);
  REQUIRE(config.train[1].weight == 2.5);
  REQUIRE_FALSE(config.valid[1].weight);
  refuses(R"({"train": [{"path": "a", "weight": 1}, {"path": "b"}]})",
          "train.1.weight: must be given for all data sets of the list or for none");
  refuses(R"({"train": [{"path": "a"}, {"path": "b", "weight": 2.5}]})", "train.0.weight");
  refuses(R"({"train": [{"path": "a"}],
              "valid": [{"path": "c", "weight": 1}, {"path": "d", "weight": null}]})",
          "valid.1.weight");
}

TEST_CASE("with validation files the training files are whole, whatever split is given") {
  const DataConfig split = read(R"({"train": [{"path": "a"}], "split": [949, 50, 1]})");
  REQUIRE(split.split == Split{949, 50, 1});
  REQUIRE(split.given_split == Split{949, 50, 1});
  for (const char* given : {"", R"("split": [949, 50, 1],)"}) {
    const DataConfig config = read(std::string(R"({"train": [{"path": "a"}], )") + given +
                                   R"("valid": [{"path": "v"}]})");
    REQUIRE(config.split == kWholeFiles);
    REQUIRE(config.valid.at(0).path == "v");
  }
}

TEST_CASE("every violation of the data section names its key") {
  refuses("{}", "train");
  refuses(R"({"train": []})", "train");
  refuses(R"({"train": [{}]})", "train.0.path");
  refuses(R"({"train": [{"path": ""}]})", "train.0.path");
  refuses(R"({"train": [{"path": "a", "weight": 0}]})", "train.0.weight");
  refuses(R"({"train": [{"path": "a", "weigth": 1}]})", "weight");
  refuses(R"({"train": [{"path": "a"}], "split": [1, 0]})", "split");
  refuses(R"({"train": [{"path": "a"}], "split": [0, 0, 0]})", "split");
  refuses(R"({"train": [{"path": "a"}], "split": [1, -1, 0]})", "split");
  refuses(R"({"train": [{"path": "a"}], "valid": "v"})", "valid");
  refuses(R"({"train": [{"path": "a"}], "trian": []})", "train");
}

}  // namespace slackline
