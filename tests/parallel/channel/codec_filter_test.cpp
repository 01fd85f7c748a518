#include "parallel/channel/codec_filter.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "core/checkpoint/write_checkpoint.h"
#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/infer/small_checkpoint.h"

namespace slackline {
namespace {

using schedule::Phase;
using schedule::Site;

constexpr std::uint64_t kSeed = 7;
constexpr CodecSetting kTopK = {.kind = CodecKind::top_k, .ratio = 0.25};
constexpr CodecSetting kLowRank = {.kind = CodecKind::low_rank, .rank = 1};

// Messages of 4 tokens and 12 channels after layer 0.
ActivationCompression compression_of(const CodecSetting& codec, int tensor) {
  return {.seed = kSeed,
          .tokens = 4,
          .channels = 12,
          .tensor = tensor,
          .boundaries = {{.stage = 0, .after_layer = 0, .codec = codec}}};
}

std::vector<float> random_rows(std::int64_t rows) {
  std::vector<float> values(static_cast<std::size_t>(rows) * 12);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(normal_pair(philox_key(kSeed, "rows"), i)[0]);
  }
  return values;
}

Tensor as_rows(std::vector<float>& values) {
  return Tensor(std::span(values)).reshaped({std::ssize(values) / 12, 12});
}

// A checkpoint of a small model with further tensors and a codec document.
class StoredModel {
 public:
  explicit StoredModel(std::vector<CheckpointTensor> tensors = {},
                       std::string codec = "",
                       std::optional<std::int64_t> updates = 1) {
    CheckpointContents contents{.step = 1, .updates = updates, .tensors = std::move(tensors)};
    contents.documents.model = model_config_json(small_model(40));
    contents.documents.codec = std::move(codec);
    write_checkpoint(directory_.file("model"), contents);
  }

  [[nodiscard]] Checkpoint open() const { return Checkpoint(directory_.file("model")); }

 private:
  TemporaryDirectory directory_;
};

std::vector<float> filtered(const ActivationCompression& compression,
                            Checkpoint checkpoint,
                            std::vector<float> values,
                            int layer = 0) {
  const auto filter = make_codec_filter(compression, checkpoint, 1);
  Stream stream({});
  filter->after_layer(stream, layer, as_rows(values));
  return values;
}

// What a codec of training makes of the rows [begin, end) of `values`, in `count` equal parts of
// this shape.
void pass(std::vector<float>& values, std::int64_t begin, int count, const MatrixShape& shape) {
  for (int i = 0; i < count; ++i) {
    const auto codec = make_codec(kTopK, {{.name = "pipeline_forward/0", .shape = shape}}, kSeed);
    Stream stream({.workspace_bytes = codec->workspace_bytes(1)});
    const auto first =
        static_cast<std::size_t>(begin * 12) + static_cast<std::size_t>(i) * shape.num_elements();
    const Tensor matrix = Tensor(std::span(values).subspan(first, shape.num_elements()))
                              .reshaped({shape.rows, shape.columns});
    const Buffer frame("frame", codec->frame_bytes());
    const Tensor bytes = frame.view(DType::u8, {static_cast<std::int64_t>(frame.bytes())});
    codec->encode(stream, {matrix}, {}, {}, bytes);
    codec->decode(stream, bytes, {matrix}, false);
  }
}

CompressionPlan::Class forward_class(int stage, Phase phase, const CodecSetting& codec) {
  return {.members = {.site = Site::pipeline_forward, .stage = stage, .phase = phase},
          .codec = codec};
}

}  // namespace

TEST_CASE("rows pass in groups of a message's tokens, cut as over training's tensor ranks") {
  const StoredModel model;
  for (const int tensor : {1, 2, 3}) {
    const std::vector<float> rows = random_rows(11);  // 4 + 4 + 3
    std::vector<float> expected = rows;
    for (const std::int64_t begin : {0, 4}) {
      // 4 tokens divide over 2 ranks; over 3 each has a third of the elements.
      tensor == 3 ? pass(expected, begin, 3, {.rows = 4, .columns = 4})
                  : pass(expected, begin, tensor, {.rows = 4 / tensor, .columns = 12});
    }
    // 3 tokens do not divide over 2 ranks: one matrix.
    tensor == 3 ? pass(expected, 8, 3, {.rows = 3, .columns = 4})
                : pass(expected, 8, 1, {.rows = 3, .columns = 12});
    INFO(tensor << " tensor ranks");
    CHECK(filtered(compression_of(kTopK, tensor), model.open(), rows) == expected);
    CHECK(filtered(compression_of(kTopK, tensor), model.open(), rows, 1) == rows);
  }
}

TEST_CASE("low_rank begins every message with the checkpoint's factor of its rank") {
  // Rank 0 looks at channel 0, which only the first of its two tokens has, and rank 1 at channel 3,
  // which only the second of its own has: the other one is lost, in every message alike.
  std::vector<float> factors(std::size_t{2} * 12, 0.0F);
  factors[0] = 1.0F;
  factors[12 + 3] = 1.0F;
  const auto stored = [&](const char* place) {
    return std::vector<CheckpointTensor>{
        {.name = std::string("residual/pipeline_forward/") + place + ".right_factor",
         .data = Tensor(std::span(factors)).reshaped({2, 1, 12}),
         .worker = 0}};
  };
  const StoredModel model(stored("1"));  // behind one layer
  std::vector<float> rows(std::size_t{8} * 12, 0.0F);
  std::vector<float> expected = rows;
  for (const std::size_t token : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const std::size_t at = token * 12 + token % 4;
    rows[at] = static_cast<float>(token + 1);
    expected[at] = token % 4 == 0 || token % 4 == 3 ? rows[at] : 0.0F;
  }
  // An older checkpoint, which does not count updates, names it by the stage that sends.
  CHECK(filtered(compression_of(kLowRank, 2),
                 StoredModel(stored("0"), "", std::nullopt).open(),
                 rows) == expected);
  CHECK(filtered(compression_of(kLowRank, 2), StoredModel(stored("0")).open(), rows) != expected);
  Checkpoint checkpoint = model.open();
  const auto filter = make_codec_filter(compression_of(kLowRank, 2), checkpoint, 1);
  Stream stream({});
  for (int time = 0; time < 2; ++time) {
    std::vector<float> values = rows;
    filter->after_layer(stream, 0, as_rows(values));
    CHECK(values == expected);
  }
  // Three tokens, which two ranks cannot share, are one matrix of rank 3, and a rank's share of
  // four tokens had two factors: such a message passes whole, whatever its factors begin as.
  std::vector<float> two_factors = random_rows(4);
  const StoredModel of_rank_two({{.name = "residual/pipeline_forward/1.right_factor",
                                  .data = Tensor(std::span(two_factors)).reshaped({2, 2, 12}),
                                  .worker = 0}});
  const std::vector<float> three = random_rows(3);
  const std::vector<float> passed = filtered(
      compression_of({.kind = CodecKind::low_rank, .rank = 3}, 2), of_rank_two.open(), three);
  for (std::size_t i = 0; i < three.size(); ++i) {
    CHECK(passed[i] == Approx(three[i]).margin(1e-4));  // three steps of fp32 orthogonalization
  }
  // A single token has rank 1 and passes whole.
  std::vector<float> token(rows.begin(), rows.begin() + 12);
  const std::vector<float> before = token;
  filter->after_layer(stream, 0, as_rows(token));
  CHECK(token == before);
}

TEST_CASE("a boundary has its steady phase's codec, else its first") {
  MeshJob job{.model = small_model(40), .micro_batch = {.B = 1, .T = 10}};
  job.model.layers = 4;
  job.parallel.pipeline = 4;
  const CodecSetting other{.kind = CodecKind::top_k, .ratio = 0.125};
  const CodecSetting grows{.kind = CodecKind::low_rank, .rank = 12};
  const CompressionPlan plan{.classes = {forward_class(0, Phase::warmup, other),
                                         forward_class(0, Phase::steady, kTopK),
                                         forward_class(1, Phase::warmup, other),
                                         forward_class(2, Phase::steady, grows)}};
  const auto found = activation_compression(plan, job, kSeed);
  REQUIRE(found);
  CHECK(*found ==
        ActivationCompression{.seed = kSeed,
                              .tokens = 10,
                              .channels = 12,
                              .tensor = 1,
                              .boundaries = {{.stage = 0, .after_layer = 0, .codec = kTopK},
                                             {.stage = 1, .after_layer = 1, .codec = other}}});
  CHECK(!activation_compression({}, job, kSeed));
  const CompressionPlan::Class plain{
      .members = {.site = Site::pipeline_forward, .stage = 0, .phase = Phase::steady}};
  CHECK(!activation_compression(
      {.classes = {forward_class(0, Phase::warmup, other), plain}}, job, kSeed));

  const StoredModel model({}, activation_compression_json(*found));
  CHECK(stored_activation_compression(model.open(), job.model) == found);
  CHECK(!stored_activation_compression(StoredModel().open(), job.model));
}

TEST_CASE("a codec document that does not fit the model is refused with its path") {
  const StoredModel model({}, activation_compression_json(compression_of(kTopK, 1)));
  ModelConfig wider = small_model(40);
  wider.hidden = 24;
  CHECK_THROWS_AS(stored_activation_compression(model.open(), wider), FileError);
  CHECK_THROWS_WITH(stored_activation_compression(model.open(), wider),
                    Catch::Contains("manifest.json: codec") && Catch::Contains("got 12"));
}

}  // namespace slackline
