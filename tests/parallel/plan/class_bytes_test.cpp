#include "parallel/plan/class_bytes.h"

#include <optional>
#include <string>
#include <vector>

#include "parallel/choose/compression_policy.h"
#include "parallel/plan/class_costs.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

// Whether messages of a site travel compressed, in a run of this precision.
bool is_compressed(const std::string& site, const CodecSetting& setting, DType precision) {
  MeshJob job{
      .model = {.layers = 4, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 128},
      .precision = precision,
      .micro_batch = {.B = 2, .T = 16},
      .num_micro_batches = 4};
  job.parallel.pipeline = 2;
  job.parallel.data = 2;
  CompressConfig config{.policy = CompressionPolicy::all};
  config.sites.emplace(site, setting);
  bool compressed = false;
  for (const ClassBytes& row :
       class_bytes(MeshLists(job), make_compression_plans(config, job)[0].plan)) {
    compressed = compressed || !row.compressed.empty();
  }
  return compressed;
}

std::vector<CodedMessage> gradient_messages(const DataStrategy& strategy,
                                            const CodecSetting& setting) {
  MeshJob job{
      .model = {.layers = 4, .hidden = 32, .heads = 4, .sequence = 16, .vocab = 67, .ffn = 128},
      .micro_batch = {.B = 1, .T = 16},
      .num_micro_batches = 4};
  job.parallel.data = 2;
  job.parallel.data_strategy = strategy;
  CompressConfig config{.policy = CompressionPolicy::all};
  config.sites.emplace("data_gradient", setting);
  std::vector<CodedMessage> messages;
  for (const ClassBytes& row :
       class_bytes(MeshLists(job), make_compression_plans(config, job)[0].plan)) {
    messages.insert(messages.end(), row.compressed.begin(), row.compressed.end());
  }
  return messages;
}

}  // namespace

TEST_CASE("a codec shrinks a message where it is smaller than the plain one of the site's type") {
  const CodecSetting cast{.kind = CodecKind::cast};
  const CodecSetting bytes{.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::token};
  // About 2.2 bytes for each element of a matrix, and for each of 32 x 32: between the two types.
  const CodecSetting half{.kind = CodecKind::top_k, .ratio = 0.5};
  const CodecSetting rank{.kind = CodecKind::low_rank, .rank = 9};
  for (const char* site : {"pipeline_backward", "pipeline_forward"}) {
    INFO(site);
    for (const CodecSetting& setting : {cast, half, rank}) {
      INFO(short_text(setting));
      CHECK(is_compressed(site, setting, DType::f32));
      CHECK_FALSE(is_compressed(site, setting, DType::bf16));
    }
    CHECK(is_compressed(site, bytes, DType::f32));
    CHECK(is_compressed(site, bytes, DType::bf16));
  }
  for (const char* site : {"data_gradient", "embedding"}) {
    INFO(site);
    for (const CodecSetting& setting : {cast, half, rank, bytes}) {
      INFO(short_text(setting));
      for (const DType precision : {DType::f32, DType::bf16}) {  // gradients are fp32 under both
        CHECK(is_compressed(site, setting, precision));
      }
    }
  }
}

TEST_CASE("a sum of frames decodes one of each rank, others as much as one") {
  const CodecSetting bytes{.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::token};
  const CodecSetting factors{.kind = CodecKind::low_rank, .rank = 2};
  const auto decoded = [](const DataStrategy& strategy, const CodecSetting& setting) {
    const std::vector<CodedMessage> messages = gradient_messages(strategy, setting);
    StepCosts costs;
    for (const CodedMessage& message : messages) {
      CHECK(message.is_added);
      costs.codecs.push_back(
          {.codec = setting, .shape = message.shape, .encode = {1.0}, .decode = {1.0}});
    }
    const std::optional<CodecSeconds> seconds = codec_seconds(messages, costs);
    REQUIRE(seconds);
    return seconds->decode.value / seconds->encode.value;
  };
  CHECK(decoded(DataStrategy::replicate, bytes) == 2.0);
  CHECK(decoded(DataStrategy::zero1, bytes) == 1.0);  // its own rows of both
  CHECK(decoded(DataStrategy::replicate, factors) == 1.0);
}

TEST_CASE("a sum that is cut by rows is one exchange, whether its messages add or not") {
  const CodecSetting cast{.kind = CodecKind::cast};
  const CodecSetting bytes{.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::token};
  const CodecSetting factors{.kind = CodecKind::low_rank, .rank = 2};
  const auto rounds = [](const DataStrategy& strategy, const CodecSetting& setting) {
    const std::vector<CodedMessage> messages = gradient_messages(strategy, setting);
    REQUIRE_FALSE(messages.empty());
    const ClassBytes row{.members = {.phase = schedule::Phase::step}, .compressed = messages};
    return class_cost(row, {}).rounds;
  };
  CHECK(rounds(DataStrategy::replicate, cast) == schedule::Rounds{.sums = 1});
  CHECK(rounds(DataStrategy::zero1, cast) == schedule::Rounds{.gathers = 1});
  CHECK(rounds(DataStrategy::replicate, bytes) == schedule::Rounds{.gathers = 1});
  CHECK(rounds(DataStrategy::zero1, bytes) == schedule::Rounds{.gathers = 1});
  CHECK(rounds(DataStrategy::zero1, factors) == schedule::Rounds{.sums = 2});  // which is not cut
}

}  // namespace slackline
