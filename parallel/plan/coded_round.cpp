#include "parallel/plan/coded_round.h"

#include <algorithm>
#include <optional>

#include "compress/codec_bytes.h"
#include "compress/codec_traits.h"

namespace slackline {

namespace {

// A part of a share is coded.
struct CodedPart {
  Slice elements{};  // of the local tensor
  MatrixShape shape{};
};

// Whether the model is cut over tensor ranks.
bool has_shards(const std::vector<OptimizerPiece>& pieces) {
  return std::ranges::any_of(pieces, [](const OptimizerPiece& piece) {
    return piece.parameter->shard.shape != piece.parameter->spec.shape;
  });
}

// Ranks of a worker decide alike about a tensor that they share, whatever their shares are, unless
// the codec needs whole rows. What tensor ranks have in common goes plain: their shares may cut it
// elsewhere, and codes would differ.
std::optional<CodedPart> coded_part(const OuterShare& share,
                                    const OptimizerPiece& piece,
                                    const CodecSetting& setting,
                                    bool is_cut) {
  const Shape& local = piece.parameter->shard.shape;
  if (local.rank() != 2) {
    return std::nullopt;
  }
  if (is_cut && piece.parameter->spec.cut == TensorCut::none) {
    return std::nullopt;
  }
  const auto shrinks_as = [&](const MatrixShape& shape) {
    return setting.always || shrinks(setting, shape, DType::f32);
  };
  if (!traits_of(setting.kind).trains) {
    const auto row = [](std::size_t elements) {
      return MatrixShape{.rows = 1, .columns = static_cast<std::int64_t>(elements)};
    };
    return shrinks_as(row(piece.parameter->spec.shape.num_elements()))
               ? std::make_optional(
                     CodedPart{.elements = share.range, .shape = row(share.range.count())})
               : std::nullopt;
  }
  const auto columns = static_cast<std::size_t>(local[1]);
  const Slice rows{(share.range.begin + columns - 1) / columns, share.range.end / columns};
  const MatrixShape shape{
      .rows = static_cast<std::int64_t>(rows.end) - static_cast<std::int64_t>(rows.begin),
      .columns = local[1]};
  if (shape.rows < 1 || !shrinks_as(shape)) {
    return std::nullopt;
  }
  return CodedPart{.elements = {rows.begin * columns, rows.end * columns}, .shape = shape};
}

// All ranks at this place in other workers have the same sums. Each is as large as a transfer of
// plain differences at most, but for a matrix that is larger.
void add_matrix(const SummedPart& matrix,
                const CodecSetting& setting,
                const RoundPlace& place,
                CodedBucket& round) {
  if (round.sums.empty() ||
      elements_of(round.sums.back().matrices) + matrix.elements.count() > kRoundTransferElements) {
    round.sums.push_back({.setting = setting,
                          .ranks = place.workers,
                          .rank = place.worker,
                          .of = CodedSum::Of::round,
                          .seed = place.seed});
  }
  round.sums.back().matrices.push_back(matrix);
}

}  // namespace

CodedBucket coded_round(const std::vector<OuterShare>& shares,
                        const std::vector<OptimizerPiece>& pieces,
                        const CodecSetting& setting,
                        const RoundPlace& place) {
  CodedBucket round{.ranks = place.workers};
  const bool is_cut = has_shards(pieces);
  for (const OuterShare& share : shares) {
    const OptimizerPiece& piece = pieces[share.piece];
    const auto part_of_share = [&](const Slice& elements, const Shape& shape) {
      return SummedPart{.parameter = piece.parameter,
                        .elements = elements,
                        .shape = shape,
                        .first = share.first + elements.begin - share.range.begin,
                        .is_part = true,
                        .counted = share.counted};
    };
    const auto add_plain = [&](const Slice& elements) {
      if (elements.count() > 0) {
        round.plain.push_back(
            part_of_share(elements, {static_cast<std::int64_t>(elements.count())}));
      }
    };
    const std::optional<CodedPart> coded = coded_part(share, piece, setting, is_cut);
    if (!coded) {
      add_plain(share.range);
      continue;
    }
    add_plain({share.range.begin, coded->elements.begin});
    add_matrix(part_of_share(coded->elements, {coded->shape.rows, coded->shape.columns}),
               setting,
               place,
               round);
    add_plain({coded->elements.end, share.range.end});
  }
  return round;
}

}  // namespace slackline
