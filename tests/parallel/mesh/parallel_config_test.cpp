#include "parallel/mesh/parallel_config.h"

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

using testing::Mismatch;

ModelConfig model() {
  return {.layers = 8, .hidden = 48, .heads = 6, .sequence = 5, .vocab = 50, .ffn = 96};
}

ParallelConfig read(const std::string& section, const ModelConfig& config = model()) {
  return read_parallel_config(
      JsonReader::parse(R"({"parallel": )" + section + "}", "run.json").section("parallel"),
      config);
}

std::string refusal(const std::string& section, const ModelConfig& config = model()) {
  return testing::refusal_of<ConfigError>([&] { return read(section, config); });
}

std::string batch_refusal(const ParallelConfig& config, BatchSplit batch) {
  return testing::refusal_of<ConfigError>([&] { check_batch_fits(config, model(), batch); });
}

// Empty where the message names the key and the rule.
Mismatch unlike(const std::string& message, const std::string& key, const std::string& rule) {
  const bool names_key = message.find("parallel." + key) != std::string::npos;
  return names_key && message.find(rule) != std::string::npos ? Mismatch{} : Mismatch{message};
}

}  // namespace

TEST_CASE("an empty parallel section is one rank, asynchronous 1F1B") {
  const ParallelConfig config = read("{}");
  CHECK(config.num_ranks() == 1);
  CHECK(config.num_virtual_stages() == 1);
  CHECK(config.num_groups() == 1);
  CHECK(config.schedule == ScheduleName::one_f_one_b);
  CHECK(config.stage_layers.empty());
  CHECK_FALSE(config.sequence_parallel);
  CHECK(config.data_strategy == DataStrategy::replicate);
  CHECK(config.transfers == schedule::Transfers::asynchronous);
  CHECK(config.embedding_sync == EmbeddingSync::fused);
}

TEST_CASE("every key of the parallel section is read") {
  const ParallelConfig config = read(
      R"({"tensor": 2, "pipeline": 2, "data": 4, "group": 2, "schedule": "interleaved", "chunks": 2,
               "stage_layers": [1, 3, 3, 1], "sequence_parallel": true, "data_strategy": "zero1",
               "transfers": "blocking", "embedding_sync": "separate"})");
  CHECK(config.num_ranks() == 16);
  CHECK(config.data_ranks_of_group() == 2);
  CHECK(config.num_groups() == 2);
  CHECK(config.num_virtual_stages() == 4);
  CHECK(config.schedule == ScheduleName::interleaved);
  CHECK(config.stage_layers == std::vector<int>{1, 3, 3, 1});
  CHECK(config.sequence_parallel);
  CHECK(config.data_strategy == DataStrategy::zero1);
  CHECK(config.transfers == schedule::Transfers::blocking);
  CHECK(config.embedding_sync == EmbeddingSync::separate);
  CHECK(read(R"({"schedule": "gpipe"})").schedule == ScheduleName::gpipe);
  CHECK(read(R"({"schedule": "zb_h1"})").schedule == ScheduleName::zb_h1);
}

TEST_CASE("degrees below one and unknown names are refused") {
  CHECK(unlike(refusal(R"({"tensor": 0})"), "tensor", "got 0") == "");
  CHECK(unlike(refusal(R"({"data": -2})"), "data", "got -2") == "");
  CHECK(unlike(refusal(R"({"schedule": "1f1c"})"), "schedule", "1f1b") == "");
  CHECK(unlike(refusal(R"({"data_strategy": "zero4"})"), "data_strategy", "zero1") == "");
  CHECK(unlike(refusal(R"({"data_strategy": "NIX"})"), "data_strategy", "zero1") == "");
  CHECK(unlike(refusal(R"({"transfers": "block"})"), "transfers", "blocking") == "");
  CHECK(unlike(refusal(R"({"embedding_sync": "fuse"})"), "embedding_sync", "fused") == "");
  CHECK(unlike(refusal(R"({"tensors": 2})"), "tensor", "tensors") == "");
}

TEST_CASE("a tensor degree that does not divide heads and ffn is refused with the nearest") {
  CHECK(unlike(refusal(R"({"tensor": 4})"), "tensor", "nearest is 3") == "");
  CHECK(unlike(refusal(R"({"tensor": 7})"), "tensor", "model.heads = 6") == "");
  ModelConfig narrow = model();
  narrow.ffn = 98;
  CHECK(unlike(refusal(R"({"tensor": 3})", narrow), "tensor", "nearest is 2") == "");
  ModelConfig few_tokens = model();
  few_tokens.vocab = 2;
  CHECK(unlike(refusal(R"({"tensor": 3})", few_tokens), "tensor", "model.vocab = 2") == "");
}

TEST_CASE("a group that does not divide the data ranks is refused with the nearest") {
  CHECK(unlike(refusal(R"({"data": 6, "group": 4})"),
               "group",
               "must divide parallel.data = 6; nearest is 3; got 4") == "");
  CHECK(unlike(refusal(R"({"data": 2, "group": 4})"), "group", "nearest is 2") == "");
  CHECK(unlike(refusal(R"({"group": 0})"), "group", "got 0") == "");
  CHECK(read(R"({"data": 6})").data_ranks_of_group() == 6);
  CHECK(read(R"({"data": 6, "group": null})").num_groups() == 1);
  CHECK(read(R"({"data": 6, "group": 1})").num_groups() == 6);
}

TEST_CASE("chunks need the interleaved schedule, and that a pipeline") {
  CHECK(unlike(refusal(R"({"pipeline": 2, "chunks": 2})"), "chunks", "interleaved") == "");
  CHECK(unlike(refusal(R"({"schedule": "interleaved"})"), "schedule", "1f1b") == "");
}

TEST_CASE("more stages than layers are refused") {
  CHECK(unlike(refusal(R"({"pipeline": 9})"), "pipeline", "9 stages, and the model has 8") == "");
  CHECK(unlike(refusal(R"({"pipeline": 4, "schedule": "interleaved", "chunks": 3})"),
               "pipeline",
               "12 stages") == "");
}

TEST_CASE("sizes whose product no int holds are refused") {
  CHECK(unlike(refusal(R"({"pipeline": 65535, "data": 65535})"), "data", "at most 1048576") == "");
  CHECK(unlike(refusal(R"({"pipeline": 65536, "chunks": 65536, "schedule": "interleaved"})"),
               "pipeline",
               "4294967296 stages") == "");
}

TEST_CASE("given layers have to name every stage and add up") {
  const std::string rule = "one count for each of 2 stages, adding up to model.layers = 8";
  CHECK(unlike(refusal(R"({"pipeline": 2, "stage_layers": [8]})"), "stage_layers", rule) == "");
  CHECK(unlike(refusal(R"({"pipeline": 2, "stage_layers": [4, 3]})"), "stage_layers", rule) == "");
  CHECK(unlike(refusal(R"({"pipeline": 2, "stage_layers": [8, 0]})"), "stage_layers", "0") == "");
}

TEST_CASE("zb_h1 with recompute is refused") {
  ModelConfig recomputing = model();
  recomputing.recompute = Recompute::block;
  CHECK(unlike(refusal(R"({"schedule": "zb_h1"})", recomputing), "schedule", "recompute") == "");
}

TEST_CASE("sequence parallelism needs rows that divide") {
  ParallelConfig config{.tensor = 2, .sequence_parallel = true};
  CHECK(unlike(batch_refusal(config, {.global = 6, .micro = 3}),
               "sequence_parallel",
               "15 tokens") == "");
  CHECK(batch_refusal(config, {.global = 4, .micro = 2}) == "accepted");
  config.sequence_parallel = false;
  CHECK(batch_refusal(config, {.global = 6, .micro = 3}) == "accepted");
}

TEST_CASE("interleaved ranks need a multiple of the pipeline's micro-batches") {
  const ParallelConfig config{
      .pipeline = 4, .data = 2, .schedule = ScheduleName::interleaved, .chunks = 2};
  CHECK(unlike(batch_refusal(config, {.global = 12, .micro = 1}),
               "schedule",
               "parallel.pipeline = 4: batch.global 12 makes 6") == "");
  CHECK(batch_refusal(config, {.global = 16, .micro = 1}) == "accepted");
}

TEST_CASE("data strategies have names or letters, and an optimizer as fine as the rest") {
  using E = Extent;
  CHECK(all_data_strategies().size() == 14);
  for (const DataStrategy& strategy : all_data_strategies()) {
    for (const std::string& name : {letters_of(strategy), name_of(strategy)}) {
      INFO(name);
      CHECK(read(R"({"data_strategy": ")" + name + "\"}").data_strategy == strategy);
    }
  }
  CHECK(read(R"({"data_strategy": "zero2"})").data_strategy ==
        DataStrategy{E::none, E::global, E::global});
  CHECK(read(R"({"data_strategy": "IIG"})").data_strategy ==
        DataStrategy{E::group, E::group, E::global});
  CHECK(unlike(refusal(R"({"data_strategy": "GNN"})"), "data_strategy", "GNG") == "");
  CHECK(unlike(refusal(R"({"data_strategy": "NGI"})"), "data_strategy", "zero2") == "");
}

TEST_CASE("micro-batches to choose from are those that the layout takes") {
  using Sizes = std::vector<std::int64_t>;
  const auto choices = [](const ParallelConfig& config, std::int64_t global) {
    return micro_batch_choices(config, model(), global);
  };
  CHECK(choices({}, 8) == Sizes{1, 2, 4, 8});
  CHECK(choices({.data = 2}, 12) == Sizes{1, 2, 6});
  const ParallelConfig sliced{.tensor = 2, .data = 2, .sequence_parallel = true};
  CHECK(choices(sliced, 12) == Sizes{2, 6});  // of five tokens each
  CHECK(choices(sliced, 6).empty());
  CHECK(choices({.pipeline = 2, .schedule = ScheduleName::interleaved, .chunks = 2}, 12) ==
        Sizes{1, 2});
  CHECK(choices({.pipeline = 2}, kMostPasses).front() == 2);
}

TEST_CASE("groups that a strategy asks for are the data ranks of a node") {
  const auto group_of = [](const ParallelConfig& config, int ranks_of_node) {
    return with_groups_of_nodes(config, CollectivesWish::automatic, ranks_of_node).group;
  };
  const DataStrategy hybrid = *data_strategy_named("IIG");
  CHECK(group_of({.data = 8, .data_strategy = hybrid}, 4) == 4);
  CHECK(group_of({.tensor = 2, .pipeline = 2, .data = 8, .data_strategy = hybrid}, 8) == 2);
  CHECK(group_of({.data = 6, .data_strategy = hybrid}, 4) == 3);  // divides the data ranks
  CHECK(group_of({.pipeline = 4, .data = 6, .data_strategy = hybrid}, 2) == 1);
  CHECK(group_of({.data = 8, .group = 2, .data_strategy = hybrid}, 4) == 2);
  CHECK(group_of({.data = 8, .data_strategy = DataStrategy::zero3}, 4) == 0);
  CHECK(group_of({.data = 8, .chooses_strategy = true}, 4) == 4);
  CHECK(group_of({.data = 8, .codes_sums = true}, 4) == 4);
  CHECK(group_of({.tensor = 2, .pipeline = 2, .data = 8, .codes_sums = true}, 8) == 2);
  CHECK(group_of({.tensor = 2, .pipeline = 2, .data = 2, .codes_sums = true}, 4) == 0);
  CHECK(group_of({.tensor = 2, .pipeline = 2, .data = 4, .codes_sums = true}, 8) == 0);
  CHECK(group_of({.tensor = 2, .pipeline = 2, .data = 4, .codes_sums = true}, 4) == 0);
  CHECK(with_groups_of_nodes({.data = 8}, CollectivesWish::hierarchical, 4).group == 4);
  CHECK(with_groups_of_nodes({.data = 8}, CollectivesWish::direct, 4).group == 0);
}

}  // namespace slackline
