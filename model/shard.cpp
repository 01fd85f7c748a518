#include "model/shard.h"

#include <optional>
#include <utility>

#include "core/check.h"
#include "model/tensor_sum.h"

namespace slackline {

namespace {

struct Cut {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

Cut own_cut(std::int64_t count, int rank, int size) {
  const TensorShare share{.rank = rank, .size = size};
  const std::int64_t first = share.first_of(count);
  return {first, first + share.num_of(count)};
}

Shape with_dim(const Shape& shape, std::size_t dim, std::int64_t count) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[dim] = count;
  return Shape(std::span<const std::int64_t>(dims));
}

// The local tensor that puts the given cuts of one dimension side by side.
Shard shard_along(const Shape& logical, std::size_t dim, const std::vector<Cut>& cuts) {
  std::int64_t used = 0;
  Shard shard;
  for (const Cut& cut : cuts) {
    ShardPart part;
    part.logical = {whole_region(logical).start, with_dim(logical, dim, cut.count())};
    part.local = part.logical;
    part.logical.start[dim] = cut.begin;
    part.local.start[dim] = used;
    used += cut.count();
    if (part.local.shape.num_elements() > 0) {
      shard.parts.push_back(std::move(part));
    }
  }
  shard.shape = with_dim(logical, dim, used);
  return shard;
}

// This rank's heads of Q, of K and of V.
std::vector<Cut> qkv_cuts(const ModelConfig& config, int rank, int size) {
  SL_CHECK_EQ(config.heads % size, 0);
  const Cut heads = own_cut(config.heads, rank, size);
  const std::int64_t C = config.hidden;
  const std::int64_t D = config.head_dim();
  std::vector<Cut> cuts;
  for (const std::int64_t first : {std::int64_t{0}, C, 2 * C}) {
    cuts.push_back({first + heads.begin * D, first + heads.end * D});
  }
  return cuts;
}

// The rectangles of a flat range of a tensor of one or two dimensions.
std::vector<Region> rectangles_of_range(const Shape& shape, Slice range) {
  const auto begin = static_cast<std::int64_t>(range.begin);
  const auto end = static_cast<std::int64_t>(range.end);
  if (begin == end) {
    return {};
  }
  if (shape.rank() == 1) {
    return {{{begin}, {end - begin}}};
  }
  const std::int64_t columns = shape[1];
  const auto row = [&](std::int64_t from, std::int64_t to) {
    return Region{{from / columns, from % columns}, {1, to - from}};
  };
  const std::int64_t first_whole = (begin + columns - 1) / columns;  // row
  const std::int64_t last_whole = end / columns;                     // one past the last
  if (first_whole > last_whole) {
    return {row(begin, end)};
  }
  std::vector<Region> rectangles;
  if (begin < first_whole * columns) {
    rectangles.push_back(row(begin, first_whole * columns));
  }
  if (first_whole < last_whole) {
    rectangles.push_back({{first_whole, 0}, {last_whole - first_whole, columns}});
  }
  if (last_whole * columns < end) {
    rectangles.push_back(row(last_whole * columns, end));
  }
  return rectangles;
}

}  // namespace

Shard shard_of(const ParameterSpec& spec, const ModelConfig& config, int rank, int size) {
  SL_CHECK(0 <= rank && rank < size, "tensor rank");
  const auto last = static_cast<std::size_t>(spec.shape.rank()) - 1;
  switch (spec.cut) {
    case TensorCut::rows:
      return shard_along(spec.shape, 0, {own_cut(spec.shape[0], rank, size)});
    case TensorCut::columns:
      return shard_along(spec.shape, last, {own_cut(spec.shape[-1], rank, size)});
    case TensorCut::qkv_columns:
      if (size > 1) {
        return shard_along(spec.shape, last, qkv_cuts(config, rank, size));
      }
      break;
    case TensorCut::none:
      break;
  }
  return shard_along(spec.shape, 0, {{0, spec.shape[0]}});
}

std::vector<ShardPart> parts_of_range(const Shard& shard, Slice range) {
  SL_CHECK(range.begin <= range.end && range.end <= shard.shape.num_elements(),
           "range of a local tensor");
  SL_CHECK(shard.shape.rank() == 1 || shard.shape.rank() == 2, "shape of a parameter");
  std::vector<ShardPart> parts;
  for (const Region& rectangle : rectangles_of_range(shard.shape, range)) {
    for (const ShardPart& part : shard.parts) {
      if (std::optional<Region> local = intersection(part.local, rectangle)) {
        std::vector<std::int64_t> logical =
            moved(local->start, part.local.start, part.logical.start);
        parts.push_back({{std::move(logical), local->shape}, *std::move(local)});
      }
    }
  }
  return parts;
}

}  // namespace slackline
