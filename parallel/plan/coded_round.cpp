#include "parallel/plan/coded_round.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

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

void add_rest(const Slice& elements, std::vector<Slice>& rest) {
  if (elements.count() == 0) {
    return;
  }
  if (!rest.empty() && rest.back().end == elements.begin) {
    rest.back().end = elements.end;
  } else {
    rest.push_back(elements);
  }
}

// All ranks at this place in other workers have the same sums. Each is as large as a transfer of
// plain differences at most, but for a matrix that is larger.
void add_sums(const CodecSetting& setting, const RoundPlace& place, CodedRound& round) {
  std::size_t elements = 0;
  for (std::size_t i = 0; i < round.matrices.size(); ++i) {
    const std::size_t own = round.matrices[i].elements.count();
    if (round.bucket.sums.empty() || elements + own > kRoundTransferElements) {
      round.bucket.sums.push_back({.setting = setting,
                                   .ranks = place.workers,
                                   .rank = place.worker,
                                   .of = CodedSum::Of::round,
                                   .seed = place.seed});
      elements = 0;
    }
    round.bucket.sums.back().matrices.push_back(&round.parameters[i]);
    elements += own;
  }
}

}  // namespace

std::size_t CodedRound::rest_elements() const {
  std::size_t elements = 0;
  for (const Slice& range : rest) {
    elements += range.count();
  }
  return elements;
}

CodedRound coded_round(const std::vector<OuterShare>& shares,
                       const std::vector<OptimizerPiece>& pieces,
                       const CodecSetting& setting,
                       const RoundPlace& place) {
  CodedRound round;
  round.bucket.ranks = place.workers;
  const bool is_cut = has_shards(pieces);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const OuterShare& share = shares[i];
    const OptimizerPiece& piece = pieces[share.piece];
    const Slice all{share.first, share.first + share.range.count()};
    const std::optional<CodedPart> part = coded_part(share, piece, setting, is_cut);
    if (!part) {
      add_rest(all, round.rest);
      continue;
    }
    const std::size_t begin = share.first + part->elements.begin - share.range.begin;
    const Slice elements{begin, begin + part->elements.count()};
    add_rest({all.begin, elements.begin}, round.rest);
    add_rest({elements.end, all.end}, round.rest);
    Parameter& parameter = round.parameters.emplace_back();
    parameter.spec.name = fmt::format(
        "{}/{}-{}", piece.parameter->spec.name, part->elements.begin, part->elements.end);
    parameter.shard.shape = {part->shape.rows, part->shape.columns};
    round.matrices.push_back({.share = i, .elements = elements});
  }
  if (!round.rest.empty()) {
    Parameter& rest = round.parameters.emplace_back();
    rest.shard.shape = {static_cast<std::int64_t>(round.rest_elements())};
  }
  add_sums(setting, place, round);
  if (!round.rest.empty()) {
    round.bucket.plain.push_back(&round.parameters.back());
  }
  return round;
}

}  // namespace slackline
