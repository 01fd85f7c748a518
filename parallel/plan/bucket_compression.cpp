#include "parallel/plan/bucket_compression.h"

#include <algorithm>
#include <iterator>

#include "compress/codec_bytes.h"

namespace slackline {

namespace {

using Kind = GradientBucket::Kind;

// Returns the shape by which all tensor ranks decide alike: where shards differ, by a row or
// column, the smallest one's.
MatrixShape shape_on_any(const SummedPart& part, int tensor_size) {
  MatrixShape shape{.rows = part.shape[0], .columns = part.shape[1]};
  if (part.is_part) {
    return shape;
  }
  const ParameterSpec& spec = part.parameter->spec;
  if (spec.cut == TensorCut::rows) {
    shape.rows = spec.shape[0] / tensor_size;
  } else if (spec.cut == TensorCut::columns) {
    shape.columns = spec.shape[1] / tensor_size;
  }
  return shape;
}

// Null where the part travels plain.
const CodecSetting* setting_of(const SummedPart& part,
                               const SyncOp& op,
                               const GradientBucket& bucket,
                               const RankPlan& rank,
                               const CompressionPlan& plan) {
  if (bucket.kind == Kind::norms || part.shape.rank() != 2 || op.ranks == 1) {
    return nullptr;
  }
  // Tensor ranks have to add up alike what all of them have. Of a share they may have other rows.
  const bool in_common = part.parameter->spec.cut == TensorCut::none;
  if (part.is_part && in_common && rank.sync.tensor_size > 1) {
    return nullptr;
  }
  const CodecSetting* setting = plan.setting_of(gradient_class(*part.parameter, bucket, rank));
  if (setting == nullptr || setting->always) {
    return setting;
  }
  return shrinks(*setting, shape_on_any(part, rank.sync.tensor_size), DType::f32) ? setting
                                                                                  : nullptr;
}

std::vector<CollectiveCall> calls_of(const CodedSum& sum) {
  const std::vector<CodecPart> parts = matrix_parts(sum.matrices);
  if (!sum.owners.empty()) {
    const std::size_t bytes = message_bytes(sum);
    if (sum.two_shot) {
      return {{.kind = TransferRecord::Kind::all_to_all, .elements = bytes, .element_size = 1},
              {.kind = TransferRecord::Kind::all_gather, .elements = bytes, .element_size = 1}};
    }
    if (!adds(sum.setting.kind)) {
      return {{.kind = TransferRecord::Kind::all_to_all, .elements = bytes, .element_size = 1}};
    }
    return {{.kind = TransferRecord::Kind::reduce_scatter,
             .elements = bytes / size_of(DType::bf16),
             .element_size = size_of(DType::bf16)}};
  }
  if (!adds(sum.setting.kind)) {
    const auto ranks = static_cast<std::size_t>(sum.ranks);
    return {{.kind = TransferRecord::Kind::all_gather,
             .elements = ranks * frame_bytes(sum.setting, parts),
             .element_size = 1}};
  }
  std::vector<CollectiveCall> calls;
  for (const SumRound& round : sum_rounds(sum.setting, parts)) {
    calls.push_back({.kind = TransferRecord::Kind::all_reduce,
                     .elements = round.elements,
                     .element_size = round.element_bytes});
  }
  return calls;
}

// The bytes that all ranks send directly; whether a sum is cut does not depend on its way.
std::size_t sent_by_all(const CodedSum& sum) {
  std::size_t bytes = 0;
  for (const CollectiveCall& call : calls_of(sum)) {
    for (int rank = 0; rank < sum.ranks; ++rank) {
      bytes += bytes_sent_by(call, rank, sum.ranks);
    }
  }
  return bytes;
}

// Whether a matrix is fewer bytes in two shots; that does not hang on what it travels with.
bool pays_in_two_shots(const CodecSetting& setting, const Shape& shape, int ranks) {
  const MatrixShape most_rows{.rows = (shape[0] + ranks - 1) / ranks, .columns = shape[1]};
  return 2 * payload_bytes(setting, most_rows) <
         payload_bytes(setting, {.rows = shape[0], .columns = shape[1]});
}

}  // namespace

std::vector<CodecPart> matrix_parts(const std::vector<SummedPart>& matrices) {
  std::vector<CodecPart> parts;
  parts.reserve(matrices.size());
  for (const SummedPart& matrix : matrices) {
    parts.push_back({.name = matrix.name(),
                     .shape = {.rows = matrix.shape[0], .columns = matrix.shape[1]},
                     .moments = matrix.moments()});
  }
  return parts;
}

std::vector<std::int64_t> message_shape(const CodedSum& sum) {
  return message_shape(matrix_parts(sum.matrices));
}

std::vector<std::int64_t> message_shape(const std::vector<CodecPart>& parts) {
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
  const std::vector<CodecPart> parts = matrix_parts(sum.matrices);
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

CodedBucket coded_bucket(const SyncOp& op,
                         const SyncPlan& sync,
                         const RankPlan& rank,
                         const CompressionPlan& plan,
                         std::uint64_t seed) {
  const GradientBucket& bucket = sync.buckets[op.bucket];
  CodedBucket coded{.ranks = op.ranks, .order = op.order, .hierarchy = op.hierarchy};
  // Messages of the ranks of a group add in rank order, a table's pairs among them.
  const SumOrder order{.runs = {op.order.runs[0] * op.order.runs[1], 1}};
  for (const SummedPart& part : summed_parts(op, sync, rank)) {
    const CodecSetting* setting = setting_of(part, op, bucket, rank, plan);
    if (setting == nullptr) {
      coded.plain.push_back(part);
      continue;
    }
    const bool two_shot = setting->sum == SumWay::two_shot &&
                          op.kind != SyncOp::Kind::reduce_scatter &&
                          pays_in_two_shots(*setting, part.shape, op.ranks);
    auto sum = std::find_if(coded.sums.begin(), coded.sums.end(), [&](const auto& made) {
      return made.setting == *setting && made.two_shot == two_shot;
    });
    if (sum == coded.sums.end()) {
      coded.sums.push_back(
          {.setting = *setting,
           .ranks = op.ranks,
           .rank = op.rank,
           .of = bucket.kind == Kind::table ? CodedSum::Of::table : CodedSum::Of::gradients,
           .seed = seed,
           .order = order,
           .two_shot = two_shot});
      sum = std::prev(coded.sums.end());
    }
    sum->matrices.push_back(part);
  }
  for (CodedSum& sum : coded.sums) {
    if (sum.two_shot) {
      sum.owners = even_rows(matrix_parts(sum.matrices), op.ranks);
    } else if (op.kind == SyncOp::Kind::reduce_scatter &&
               traits_of(sum.setting.kind).cuts_by_rows) {
      const std::size_t whole = sent_by_all(sum);
      sum.owners = owned_rows(op.range.count(), sum.matrices, op.ranks);
      if (sent_by_all(sum) >= whole) {
        sum.owners.clear();
      }
    }
  }
  return coded;
}

std::vector<CollectiveCall> calls_of(const CodedBucket& bucket) {
  std::vector<CollectiveCall> calls;
  if (const std::size_t plain = elements_of(bucket.plain); plain > 0) {
    calls.push_back({.kind = TransferRecord::Kind::all_reduce,
                     .elements = plain,
                     .order = bucket.order,
                     .hierarchy = bucket.hierarchy});
  }
  for (const CodedSum& sum : bucket.sums) {
    for (CollectiveCall& call : calls_of(sum)) {
      call.order = sum.order;
      call.hierarchy = bucket.hierarchy;
      calls.push_back(call);
    }
  }
  return calls;
}

}  // namespace slackline
