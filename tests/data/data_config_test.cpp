#include "data/data_config.h"

#include "core/error.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

DataConfig read(const std::string& json) {
  return read_data_config(JsonReader::parse(json, "test"));
}

void refuses(const std::string& json, const std::string& why) {
  CAPTURE(json);
  REQUIRE_THROWS_AS(read(json), ConfigError);
  REQUIRE_THROWS_WITH(read(json), Catch::Contains(why));
}

}  // namespace

TEST_CASE("the data section reads with its defaults") {
  const DataConfig config = read(R"({"train": [{"path": "a"}, {"path": "b", "weight": 2.5}]})");
  REQUIRE(config.train.size() == 2);
  REQUIRE(config.train[0].weight == 1.0);
  REQUIRE(config.train[1].path == "b");
  REQUIRE(config.train[1].weight == 2.5);
  REQUIRE(config.split == Split{0.95, 0.05, 0.0});
  REQUIRE(config.valid.empty());

  const DataConfig other = read(R"({"train": [{"path": "a"}], "split": [949, 50, 1],
                                    "valid": [{"path": "v"}]})");
  REQUIRE(other.split == Split{949, 50, 1});
  REQUIRE(other.valid.at(0).path == "v");
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
