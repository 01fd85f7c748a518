#include "parallel/plan/class_bytes.h"

#include <string>

#include "parallel/choose/compression_policy.h"
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

}  // namespace slackline
