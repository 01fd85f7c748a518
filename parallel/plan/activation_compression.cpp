#include "parallel/plan/activation_compression.h"

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/error.h"
#include "core/joined_text.h"
#include "core/json_reader.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/plan/pipeline_boundaries.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::Site;

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40U;

const CodecSetting* forward_codec(const CompressionPlan& plan, int stage) {
  const CodecSetting* first = nullptr;
  for (const CompressionPlan::Class& row : plan.classes) {
    if (row.members.site != Site::pipeline_forward || row.members.stage != stage) {
      continue;
    }
    const CodecSetting* const codec = row.codec ? &*row.codec : nullptr;
    if (row.members.phase == Phase::steady) {
      return codec;
    }
    first = first == nullptr ? codec : first;
  }
  return first;
}

ActivationCompression::Boundary read_boundary(JsonReader& section, const ModelConfig& model) {
  ActivationCompression::Boundary boundary;
  boundary.stage = static_cast<int>(section.integer("stage", {.min = 0, .max = model.layers}));
  boundary.after_layer =
      static_cast<int>(section.integer("after_layer", {.min = 0, .max = model.layers - 1}));
  JsonReader codec = section.section("codec");
  boundary.codec = read_codec_setting(codec);
  codec.finish();
  section.finish();
  return boundary;
}

ActivationCompression read_document(JsonReader document, const ModelConfig& model) {
  ActivationCompression result;
  result.seed = static_cast<std::uint64_t>(document.integer("seed", {.min = 0}));
  result.tokens = document.integer("tokens", {.min = 1, .max = kMaxTokens});
  result.channels = document.integer("channels", {.min = model.hidden, .max = model.hidden});
  result.tensor = static_cast<int>(document.integer("tensor", {.min = 1, .max = model.heads}));
  if (result.channels % result.tensor != 0) {
    document.fail("tensor", fmt::format("must divide channels = {}", result.channels));
  }
  for (JsonReader& section : document.sections("boundaries")) {
    result.boundaries.push_back(read_boundary(section, model));
  }
  document.finish();
  return result;
}

}  // namespace

std::optional<ActivationCompression> activation_compression(const CompressionPlan& plan,
                                                            const MeshJob& job,
                                                            std::uint64_t seed) {
  ActivationCompression result{.seed = seed,
                               .tokens = job.micro_batch.num_tokens(),
                               .channels = job.model.hidden,
                               .tensor = job.parallel.tensor};
  const MatrixShape share = share_shape(result.tokens, result.channels, result.tensor);
  const std::vector<ChunkSlice> stages = split_layers(job.model, job.parallel);
  for (int stage = 0; stage + 1 < std::ssize(stages); ++stage) {
    const CodecSetting* codec = forward_codec(plan, stage);
    if (codec != nullptr && pays_at_boundary(*codec, share, job.precision)) {
      result.boundaries.push_back(
          {.stage = stage,
           .after_layer = stages[static_cast<std::size_t>(stage)].last_layer - 1,
           .codec = *codec});
    }
  }
  return result.boundaries.empty() ? std::nullopt : std::make_optional(result);
}

std::string activation_compression_json(const ActivationCompression& compression) {
  const auto row_text = [](const ActivationCompression::Boundary& row) {
    return fmt::format(R"({{"stage": {}, "after_layer": {}, "codec": {}}})",
                       row.stage,
                       row.after_layer,
                       codec_setting_json(row.codec));
  };
  return fmt::format(
      R"({{"seed": {}, "tokens": {}, "channels": {}, "tensor": {}, "boundaries": [{}]}})",
      compression.seed,
      compression.tokens,
      compression.channels,
      compression.tensor,
      joined_of(compression.boundaries, ", ", row_text));
}

std::optional<ActivationCompression> stored_activation_compression(const Checkpoint& checkpoint,
                                                                   const ModelConfig& model) {
  const std::string& text = checkpoint.documents().codec;
  if (text.empty()) {
    return std::nullopt;
  }
  const std::string source = fmt::format("{}/{}: codec", checkpoint.path(), kManifestName);
  try {
    return read_document(JsonReader::parse(text, source), model);
  } catch (const ConfigError& error) {
    throw FileError(fmt::format("{}: {}", source, error.what()));
  }
}

}  // namespace slackline
