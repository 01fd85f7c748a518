#include "parallel/sync/bucket_compression.h"

#include <algorithm>
#include <iterator>

#include "compress/codec_bytes.h"
#include "core/comm/collective_bytes.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;
using schedule::Phase;
using schedule::Site;

// Null where the parameter travels plain.
const CodecSetting* codec_of(const Parameter& parameter,
                             const GradientBucket& bucket,
                             const CompressionPlan& plan,
                             const BucketPlace& place) {
  const Shape& shape = parameter.shard.shape;
  if (bucket.kind == Kind::norms || shape.rank() != 2 || place.group_size == 1) {
    return nullptr;
  }
  const CodecSetting* setting = plan.codec_of(class_of(parameter, bucket, place));
  if (setting == nullptr || setting->always) {
    return setting;
  }
  const MatrixShape matrix{.rows = shape[0], .columns = shape[1]};
  return shrinks(*setting, matrix, DType::f32) ? setting : nullptr;
}

std::size_t sent_by_all(const CollectiveCall& call, int ranks) {
  std::size_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes += bytes_sent_by(call, rank, ranks);
  }
  return bytes;
}

std::size_t sum_bytes(const CodedSum& sum) {
  const std::vector<CodecPart> parts = codec_parts(sum.matrices);
  const auto ranks = static_cast<std::size_t>(sum.ranks);
  if (!sum.owners.empty()) {
    // All slices are equal, so either collective sends all but the own one.
    return sent_by_all({.kind = TransferRecord::Kind::all_to_all,
                        .elements = message_bytes(sum),
                        .element_size = 1},
                       sum.ranks);
  }
  if (!adds(sum.setting.kind)) {
    return sent_by_all({.kind = TransferRecord::Kind::all_gather,
                        .elements = ranks * frame_bytes(sum.setting, parts),
                        .element_size = 1},
                       sum.ranks);
  }
  std::size_t bytes = 0;
  for (const SumRound& round : sum_rounds(sum.setting, parts)) {
    bytes += sent_by_all({.kind = TransferRecord::Kind::all_reduce,
                          .elements = round.elements,
                          .element_size = round.element_bytes},
                         sum.ranks);
  }
  return bytes;
}

int chunk_of(const Parameter& parameter, const BucketPlace& place) {
  const auto holds = [&](const ChunkSlice& chunk) {
    switch (parameter.spec.part) {
      case ModelPart::embedding:
        return chunk.embedding;
      case ModelPart::head:
        return chunk.head;
      case ModelPart::layer:
        break;
    }
    return chunk.first_layer <= parameter.spec.layer && parameter.spec.layer < chunk.last_layer;
  };
  const auto chunk = std::find_if(place.chunks->begin(), place.chunks->end(), holds);
  return static_cast<int>(chunk - place.chunks->begin());
}

// Whether it goes when the chunk's last gradients are made.
bool ends_with(const ChunkSlice& chunk, const GradientBucket& bucket) {
  return std::any_of(bucket.units.begin(), bucket.units.end(), [&](const auto& unit) {
    const auto& [part, layer] = unit;
    switch (part) {
      case ModelPart::embedding:
        return chunk.embedding;
      case ModelPart::head:
        return chunk.head && chunk.num_layers() == 0;
      case ModelPart::layer:
        break;
    }
    return layer == chunk.first_layer && chunk.num_layers() > 0;
  });
}

}  // namespace

std::vector<CodecPart> codec_parts(const std::vector<const Parameter*>& matrices) {
  std::vector<CodecPart> parts;
  parts.reserve(matrices.size());
  for (const Parameter* parameter : matrices) {
    const Shape& shape = parameter->shard.shape;
    parts.push_back(
        {.name = parameter->spec.name, .shape = {.rows = shape[0], .columns = shape[1]}});
  }
  return parts;
}

std::vector<std::int64_t> message_shape(const CodedSum& sum) {
  const std::vector<CodecPart> parts = codec_parts(sum.matrices);
  if (parts.size() == 1) {
    return {parts.front().shape.rows, parts.front().shape.columns};
  }
  std::int64_t elements = 0;
  for (const CodecPart& part : parts) {
    elements += static_cast<std::int64_t>(part.shape.num_elements());
  }
  return {elements};
}

std::size_t message_bytes(const CodedSum& sum) {
  const std::vector<CodecPart> parts = codec_parts(sum.matrices);
  if (!sum.owners.empty()) {
    return sum.owners.size() * (adds(sum.setting.kind)
                                    ? slice_elements(parts, sum.owners) * size_of(DType::bf16)
                                    : slice_bytes(sum.setting, parts, sum.owners));
  }
  if (!adds(sum.setting.kind)) {
    return frame_bytes(sum.setting, parts);
  }
  std::size_t bytes = 0;
  for (const SumRound& round : sum_rounds(sum.setting, parts)) {
    bytes += round.elements * round.element_bytes;
  }
  return bytes;
}

schedule::TransferClass class_of(const Parameter& parameter,
                                 const GradientBucket& bucket,
                                 const BucketPlace& place) {
  if (bucket.kind == Kind::table) {
    return {.site = Site::embedding, .stage = 0, .phase = Phase::tail};
  }
  const int chunk = chunk_of(parameter, place);
  const bool tail = ends_with((*place.chunks)[static_cast<std::size_t>(chunk)], bucket);
  return {.site = Site::data_gradient,
          .stage = chunk * place.pipeline_size + place.pipeline_rank,
          .phase = tail ? Phase::tail : Phase::step};
}

CodedBucket coded_bucket(const GradientBucket& bucket,
                         const CompressionPlan& plan,
                         const BucketPlace& place) {
  CodedBucket options{.ranks = place.group_size, .order = place.order};
  for (const Parameter* parameter : bucket.holds) {
    const CodecSetting* setting = codec_of(*parameter, bucket, plan, place);
    if (setting == nullptr) {
      options.plain.push_back(parameter);
      continue;
    }
    auto sum = std::find_if(options.sums.begin(), options.sums.end(), [&](const auto& made) {
      return made.setting == *setting;
    });
    if (sum == options.sums.end()) {
      options.sums.push_back({.setting = *setting,
                              .ranks = place.group_size,
                              .rank = place.group_rank,
                              .table = bucket.kind == Kind::table,
                              .seed = place.seed});
      sum = std::prev(options.sums.end());
    }
    sum->matrices.push_back(parameter);
  }
  for (CodedSum& sum : options.sums) {
    if (place.strategy == DataStrategy::zero1 && cuts_by_rows(sum.setting.kind)) {
      const std::size_t whole = sum_bytes(sum);
      sum.owners = owned_rows(bucket, sum.matrices, place.group_size);
      if (sum_bytes(sum) >= whole) {
        sum.owners.clear();
      }
    }
  }
  return options;
}

std::size_t coded_bucket_bytes(const CodedBucket& bucket) {
  std::size_t plain = 0;
  for (const Parameter* parameter : bucket.plain) {
    plain += parameter->shard.shape.num_elements();
  }
  std::size_t bytes =
      sent_by_all({.kind = TransferRecord::Kind::all_reduce, .elements = plain}, bucket.ranks);
  for (const CodedSum& sum : bucket.sums) {
    bytes += sum_bytes(sum);
  }
  return bytes;
}

}  // namespace slackline
