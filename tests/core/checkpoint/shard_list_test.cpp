#include "core/checkpoint/shard_list.h"

#include "tests/support/catch.h"

namespace slackline {

namespace {

using Catch::Contains;
using Catch::Equals;

// Rows [first, first + 2) of a (4, 6) tensor.
ShardList half(int rank, std::int64_t first) {
  const std::string file = "w-" + std::to_string(rank);
  ShardList list{.step = 3, .rank = rank};
  list.files[file] = {48, 0x123456789abcdef0U};
  list.tensors["w/a"] = {{4, 6}, DType::f32, {{file, {{first, 0}, {2, 6}}}}};
  return list;
}

ShardList failed(int rank, ExitCode code, const std::string& message) {
  return {.step = 3, .rank = rank, .failure = code, .message = message};
}

std::string refusal(const std::vector<ShardList>& lists) {
  try {
    require_written("runs/a/step-00000003", lists);
  } catch (const FileError& error) {
    return std::string("file: ") + error.what();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.exit_code())) + ": " + error.what();
  }
  return "written";
}

}  // namespace

TEST_CASE("a shard list travels as text") {
  ShardList list = half(7, 2);
  list.tensors["w/a"].pieces.push_back({"w-7", {{0, 0}, {1, 6}}, 5});
  const std::string text = shard_list_text(list);
  const ShardList again = parse_shard_list(text);
  REQUIRE(shard_list_text(again) == text);
  REQUIRE(again.rank == 7);
  REQUIRE(again.step == 3);
  REQUIRE(again.failure == ExitCode::done);
  REQUIRE(again.files.at("w-7").xxh3 == 0x123456789abcdef0U);
  REQUIRE(again.tensors.at("w/a").pieces[1].region == Region{{0, 0}, {1, 6}});
  REQUIRE(again.tensors.at("w/a").pieces[1].worker == 5);
}

TEST_CASE("a failure travels with its message, whatever bytes that has") {
  const ShardList list = failed(2, ExitCode::file, "a\"\xff\n: cannot write");
  const ShardList again = parse_shard_list(shard_list_text(list));
  REQUIRE(again.failure == ExitCode::file);
  REQUIRE_THAT(again.message, Contains("a\"") && Contains("\n: cannot write"));
}

TEST_CASE("what is no shard list is our bug") {
  REQUIRE_THROWS_WITH(parse_shard_list("{}"), Contains("shard list: step: required key"));
  REQUIRE_THROWS_AS(parse_shard_list("garbage"), Error);
}

TEST_CASE("the first rank that failed is named, and how many more did") {
  REQUIRE_THAT(refusal({half(0, 0), half(1, 2)}), Equals("written"));
  REQUIRE_THAT(refusal({half(0, 0), failed(1, ExitCode::file, "w-1: disk full")}),
               Equals("file: runs/a/step-00000003: not saved: rank 1: w-1: disk full"));
  REQUIRE_THAT(refusal({half(0, 0),
                        failed(1, ExitCode::device, "no memory"),
                        failed(2, ExitCode::file, "disk full")}),
               Equals("4: runs/a/step-00000003: not saved: rank 1: no memory (and 1 more)"));
}

TEST_CASE("lists are put together in rank order") {
  const Manifest manifest = merge(std::vector{half(0, 2), half(1, 0)});
  REQUIRE(manifest.step == 3);
  REQUIRE(manifest.files.size() == 2);
  REQUIRE(manifest.tensors.at("w/a").pieces.size() == 2);
  REQUIRE(manifest.tensors.at("w/a").pieces[0].file == "w-0");
}

TEST_CASE("lists that do not belong together are our bug") {
  const auto merged = [](const ShardList& second) {
    return merge(std::vector{half(0, 0), second});
  };
  REQUIRE_THROWS_WITH(merged(half(2, 2)), Contains("shard list 1 is of rank 2 and step 3"));
  ShardList other_step = half(1, 2);
  other_step.step = 4;
  REQUIRE_THROWS_WITH(merged(other_step), Contains("shard list 1 is of rank 1 and step 4"));
  ShardList other_shape = half(1, 2);
  other_shape.tensors["w/a"].shape = {4, 7};
  REQUIRE_THROWS_WITH(merged(other_shape), Contains("rank 1 disagrees") && Contains("w/a"));
  ShardList same_file = half(1, 2);
  same_file.files["w-0"] = {};
  REQUIRE_THROWS_WITH(merged(same_file), Contains("two ranks wrote w-0; the second is rank 1"));
}

}  // namespace slackline
