// Cost files: what is written is read back, and what is wrong is refused by file, key and rule.

#include <string>

#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tools/plan/cost_file.h"

namespace slackline {

using Catch::Contains;

namespace {

std::string refusal(const std::string& text) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("costs.json");
  write_file_atomically(path, text);
  try {
    static_cast<void>(read_cost_file(path));
  } catch (const ConfigError& error) {
    CHECK_THAT(error.what(), Catch::StartsWith(path + ":"));
    return error.what();
  }
  return "accepted";
}

std::string with_op(const std::string& op) {
  return R"({"ops": [)" + op + "]}";
}

std::string with_codec(const std::string& codec) {
  return R"({"ops": [{"kind": "forward", "seconds": 1}], "codecs": [)" + codec + "]}";
}

}  // namespace

TEST_CASE("a cost file is read back without loss") {
  StepCosts costs{.layout = CostLayout{.tensor = 2, .tokens = 512, .layers = {3, 5}},
                  .model = ModelConfig{.layers = 8,
                                       .hidden = 64,
                                       .heads = 4,
                                       .sequence = 32,
                                       .vocab = 100,
                                       .ffn = 256,
                                       .tie_embeddings = false},
                  .precision = DType::bf16,
                  .ops = {{.stage = 0, .kind = CostKind::forward, .seconds = {1.0 / 3.0}},
                          {.stage = 1, .kind = CostKind::backward_weight, .seconds = {1e-9}},
                          {.kind = CostKind::element_update, .seconds = {0.0}}},
                  .codecs = {{.codec = {.error_feedback = ErrorFeedback::lazy, .rank = 16},
                              .shape = {256, 1024},
                              .dtype = "bf16",
                              .encode = {1e-4},
                              .decode = {2e-4},
                              .sent_bytes = 40960}},
                  .nodes = {{.count = 2, .devices = 4}, {.devices = 1}},
                  .node_link = Cluster::Link{.bytes_per_second = 1e10, .source = "measured"},
                  .network_link = Cluster::Link{.latency_seconds = 1e-5,
                                                .bytes_per_second = 1.25e9,
                                                .duplex = false,
                                                .shared_by = Cluster::SharedBy::node}};
  costs.errors.note_trial({.members = {schedule::Site::data_gradient, 3, schedule::Phase::step},
                           .codec = {.error_feedback = ErrorFeedback::immediate, .rank = 4},
                           .relative_error = 1.0 / 7.0});
  const TemporaryDirectory directory;
  const std::string path = directory.file("costs.json");
  write_file_atomically(path, cost_file_text(costs));
  const StepCosts read = read_cost_file(path);
  CHECK(read.layout == costs.layout);
  CHECK(read.model == costs.model);
  CHECK(read.precision == DType::bf16);
  CHECK(read.ops == costs.ops);
  CHECK(read.codecs == costs.codecs);
  CHECK(read.errors == costs.errors);
  REQUIRE(read.nodes.size() == 2);
  CHECK(read.nodes[0].count == 2);
  CHECK(read.nodes[0].devices == 4);
  CHECK(read.nodes[1].count == 1);
  CHECK(read.nodes[1].devices == 1);
  REQUIRE(read.node_link);
  REQUIRE(read.network_link);
  CHECK(read.node_link->source == "measured");
  CHECK_FALSE(read.network_link->duplex);
  CHECK(read.network_link->shared_by == Cluster::SharedBy::node);
  CHECK(cost_file_text(read) == cost_file_text(costs));
}

TEST_CASE("a cost file needs ops alone, and every kind has its name") {
  for (const std::string_view kind : kCostKindNames) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("costs.json");
    write_file_atomically(path,
                          with_op(R"({"kind": ")" + std::string(kind) + R"(", "seconds": 0.5})"));
    const StepCosts read = read_cost_file(path);
    REQUIRE(read.ops.size() == 1);
    CHECK(kCostKindNames[static_cast<std::size_t>(read.ops[0].kind)] == kind);
    CHECK_FALSE(read.layout);
    CHECK_FALSE(read.precision);
    CHECK_FALSE(read.node_link);
  }
}

TEST_CASE("ops of a cost file are refused by key and rule") {
  CHECK_THAT(refusal("{"), Contains("line 1"));
  CHECK_THAT(refusal("{}"), Contains("ops: must list the seconds of at least one op"));
  CHECK_THAT(refusal(R"({"ops": 3})"), Contains("ops"));
  CHECK_THAT(refusal(R"({"precision": "fp16"})"), Contains("precision: must be one of fp32, bf16"));
  CHECK_THAT(refusal(with_op(R"({"seconds": 1})")), Contains("ops.0.kind"));
  CHECK_THAT(refusal(with_op(R"({"kind": "forwards", "seconds": 1})")), Contains("\"forward\""));
  CHECK_THAT(refusal(with_op(R"({"kind": "forward"})")), Contains("ops.0.seconds"));
  CHECK_THAT(refusal(with_op(R"({"kind": "forward", "seconds": -1})")), Contains("got -1"));
  CHECK_THAT(refusal(with_op(R"({"kind": "forward", "seconds": "1"})")), Contains("number"));
  CHECK_THAT(refusal(with_op(R"({"kind": "forward", "seconds": 1, "stage": -1})")),
             Contains("ops.0.stage"));
  CHECK_THAT(refusal(with_op(R"({"kind": "forward", "seconds": 1, "second": 1})")),
             Contains("ops.0.second"));
  CHECK_THAT(refusal(R"({"ops": [{"kind": "forward", "seconds": 1}], "op": []})"), Contains("op"));
}

TEST_CASE("layouts, codecs and links of a cost file are refused by key and rule") {
  CHECK_THAT(refusal(R"({"layout": {"tensor": 0, "tokens": 1, "layers": [1]}})"),
             Contains("layout.tensor"));
  CHECK_THAT(refusal(R"({"layout": {"tensor": 1, "layers": [1]}})"), Contains("layout.tokens"));
  CHECK_THAT(refusal(R"({"layout": {"tensor": 1, "tokens": 1}})"), Contains("layout.layers"));
  CHECK_THAT(refusal(with_codec(R"({"shape": [1]})")), Contains("codecs.0.codec"));
  CHECK_THAT(refusal(with_codec(R"({"codec": {"codec": "cast"}, "shape": [1], "dtype": "f32",
                                    "encode_seconds": 1, "decode_seconds": 1})")),
             Contains("codecs.0.sent_bytes"));
  CHECK_THAT(refusal(R"({"ops": [{"kind": "forward", "seconds": 1}],
                         "links": [{"scope": "rack", "bytes_per_second": 1}]})"),
             Contains("links.0.scope"));
}

TEST_CASE("a missing cost file is a config error") {
  CHECK_THROWS_AS(read_cost_file("no/such/costs.json"), ConfigError);
}

}  // namespace slackline
