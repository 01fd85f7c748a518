#include "tools/plan/cost_file.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/file_errors.h"
#include "core/joined_text.h"
#include "core/json_reader.h"
#include "core/json_string.h"
#include "parallel/plan/transfer_class_json.h"

namespace slackline {

namespace {

using schedule::Seconds;

constexpr std::int64_t kMostStages = 1'000'000;
constexpr std::int64_t kMostElements = std::int64_t{1} << 50U;
constexpr double kMostSeconds = 1e9;
constexpr std::array<std::string_view, 2> kPrecisions = {"fp32", "bf16"};

Seconds seconds_at(JsonReader& section, std::string_view key) {
  return {section.number(key, {.min = 0.0, .max = kMostSeconds})};
}

OpCost read_op(JsonReader section) {
  OpCost op;
  op.stage = static_cast<int>(
      section.integer("stage", {.default_value = 0, .min = 0, .max = kMostStages}));
  op.kind = static_cast<CostKind>(section.choice("kind", kCostKindNames));
  op.seconds = seconds_at(section, "seconds");
  section.finish();
  return op;
}

CodecCost read_codec(JsonReader section) {
  if (!section.has("codec")) {
    section.fail("codec", "is required: a codec setting as in the config");
  }
  JsonReader setting = section.section("codec");
  CodecCost codec{.codec = setting_of_calls(read_codec_setting(setting))};
  setting.finish();
  codec.shape = section.integers("shape", {.min = 1, .max = kMostElements});
  codec.dtype = section.string("dtype");
  codec.encode = seconds_at(section, "encode_seconds");
  codec.decode = seconds_at(section, "decode_seconds");
  codec.sent_bytes =
      static_cast<std::size_t>(section.integer("sent_bytes", {.min = 0, .max = kMostElements}));
  section.finish();
  return codec;
}

CostLayout read_layout(JsonReader section) {
  CostLayout layout;
  layout.tensor = static_cast<int>(section.integer("tensor", {.min = 1, .max = kMostStages}));
  layout.tokens = section.integer("tokens", {.min = 1, .max = kMostElements});
  for (const std::int64_t layers : section.integers("layers", {.min = 0, .max = kMostStages})) {
    layout.layers.push_back(static_cast<int>(layers));
  }
  section.finish();
  return layout;
}

StepCosts read(JsonReader document) {
  StepCosts costs;
  if (document.has("layout")) {
    costs.layout = read_layout(document.section("layout"));
  }
  if (document.has("model")) {
    costs.model = read_model_config(document.section("model"));
  }
  if (document.has("precision")) {
    costs.precision = document.choice("precision", kPrecisions) == 0 ? DType::f32 : DType::bf16;
  }
  for (const JsonReader& section : document.sections("ops")) {
    costs.ops.push_back(read_op(section));
  }
  if (costs.ops.empty()) {
    document.fail("ops", "must list the seconds of at least one op");
  }
  for (const JsonReader& section : document.sections("codecs")) {
    costs.codecs.push_back(read_codec(section));
  }
  if (document.has("nodes")) {
    costs.nodes = read_nodes(document);
  }
  Cluster links;
  const auto [node, one_switch, network] = read_links(document, links);
  if (one_switch) {
    document.fail("links", "must be of the scopes node and network; a run measures no switches");
  }
  if (node) {
    costs.node_link = links.node_link;
  }
  if (network) {
    costs.network_link = links.network_link;
  }
  costs.codecs_take_compute = document.boolean("codecs_take_compute", false);
  for (const CodecError& error : read_codec_errors(document, "errors")) {
    costs.errors.note_trial(error);
  }
  document.finish();
  return costs;
}

std::string op_text(const OpCost& op) {
  return fmt::format(R"({{"stage": {}, "kind": "{}", "seconds": {}}})",
                     op.stage,
                     kCostKindNames[static_cast<std::size_t>(op.kind)],
                     op.seconds.value);
}

std::string codec_text(const CodecCost& codec) {
  return fmt::format(R"({{"codec": {}, "shape": [{}], "dtype": {}, "encode_seconds": {}, )"
                     R"("decode_seconds": {}, "sent_bytes": {}}})",
                     codec_setting_json(codec.codec),
                     joined(codec.shape, ", "),
                     json_string(codec.dtype),
                     codec.encode.value,
                     codec.decode.value,
                     codec.sent_bytes);
}

std::string link_text(std::string_view scope, const Cluster::Link& link) {
  return fmt::format(
      R"({{"scope": "{}", "latency_seconds": {}, "bytes_per_second": {}, "duplex": {}, )"
      R"("shared_by": "{}", "source": "{}"}})",
      scope,
      link.latency_seconds,
      link.bytes_per_second,
      link.duplex,
      link.shared_by == Cluster::SharedBy::node ? "node" : "pair",
      link.source);
}

constexpr std::string_view kNextRow = ",\n    ";

std::string list_text(const std::string& rows) {
  return rows.empty() ? "[]" : fmt::format("[\n    {}\n  ]", rows);
}

}  // namespace

StepCosts read_cost_file(const std::string& path) {
  return reading<ConfigError>(path, [&] { return read(JsonReader::parse_file(path)); });
}

std::string cost_file_text(const StepCosts& costs) {
  std::string text = "{\n";
  if (costs.layout) {
    text += fmt::format("  \"layout\": {{\"tensor\": {}, \"tokens\": {}, \"layers\": [{}]}},\n",
                        costs.layout->tensor,
                        costs.layout->tokens,
                        joined(costs.layout->layers, ", "));
  }
  if (costs.model) {
    text += fmt::format("  \"model\": {},\n", model_config_json(*costs.model));
  }
  if (costs.precision) {
    text += fmt::format("  \"precision\": \"{}\",\n",
                        kPrecisions[*costs.precision == DType::f32 ? 0 : 1]);
  }
  if (!costs.nodes.empty()) {
    const auto nodes_text = [](const Cluster::Nodes& kind) {
      return fmt::format(R"({{"count": {}, "devices": {}}})", kind.count, kind.devices);
    };
    text += fmt::format("  \"nodes\": [{}],\n", joined_of(costs.nodes, ", ", nodes_text));
  }
  if (costs.codecs_take_compute) {
    text += "  \"codecs_take_compute\": true,\n";
  }
  std::vector<std::string> links;
  if (costs.node_link) {
    links.push_back(link_text("node", *costs.node_link));
  }
  if (costs.network_link) {
    links.push_back(link_text("network", *costs.network_link));
  }
  return text +
         fmt::format("  \"ops\": {},\n  \"codecs\": {},\n  \"errors\": {},\n  \"links\": {}\n}}\n",
                     list_text(joined_of(costs.ops, kNextRow, op_text)),
                     list_text(joined_of(costs.codecs, kNextRow, codec_text)),
                     list_text(joined_of(costs.errors.tried(), kNextRow, codec_error_text)),
                     list_text(joined(links, kNextRow)));
}

}  // namespace slackline
