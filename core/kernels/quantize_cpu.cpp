#include <array>
#include <vector>

#include "core/kernels/philox_simd.h"
#include "core/kernels/quantize.h"
#include "core/kernels/quantize_simd.h"
#include "core/kernels/quantize_strips.h"
#include "core/kernels/row_blocks.h"

// Scales of rows and groups are found strip by strip, and the strip is quantized while it is in the
// first-level cache: the matrix is read once. A scale of a column or of the whole matrix needs all
// of it first, so it is read twice, the second time backwards: as much of it as the last cache
// holds is read from there. (Strips of a few columns and all rows would fit a smaller cache, but
// rows whose length is a power of two collide in its sets.)
//
// "Factors" are 2^f / scale.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

constexpr std::size_t kColumnsPerPanel = 1024;
constexpr std::size_t kRowsAtOnce = 4;
constexpr std::size_t kElementsPerMaximum = 65536;

// What is quantized: x, or where there is a sum the sum with x added to it.
struct Source {
  const float* x;
  float* sum;  // null: none

  // The elements from `first` on, once the sum is made.
  [[nodiscard]] const float* values(std::size_t first) const {
    return sum == nullptr ? x + first : sum + first;
  }

  // Makes the sum of these elements.
  const float* make(std::size_t first, std::size_t count) const {
    if (sum != nullptr) {
      simd::for_each_vector(count, [&](std::size_t i, auto part) {
        const Floats total =
            hn::Add(simd::load(sum + first + i, part), simd::load(x + first + i, part));
        simd::store(total, sum + first + i, part);
      });
    }
    return values(first);
  }
};

// Numbers in (0, 1) for a chunk's elements, in steps of 2^-16 from 2^-17: multiples of a step of
// the scale stay what they are.
class RandomOffsets {
 public:
  explicit RandomOffsets(const RoundingKey& key)
      : words_({.site = key.stream, .step = key.step}, key.micro_batch) {}

  // Elements first_element .. first_element + count - 1; count is at most kChunk.
  void draw(std::uint64_t first_element, std::size_t count) {
    skipped_ = first_element % kHalvesPerBlock;
    const std::uint64_t first_block = first_element / kHalvesPerBlock;
    for (std::size_t i = 0; i < skipped_ + count; i += kHalvesPerDraw) {
      std::uint32_t words[simd::DropoutWords::kWords];
      words_.draw(first_block + i / kHalvesPerBlock, words);
      std::memcpy(halves_ + i, words, sizeof(words));
    }
  }

  // Of kLanes elements from `i` on, counted from the chunk's first one.
  [[nodiscard]] Floats vector(std::size_t i) const {
    const auto halves = hn::LoadU(simd::kHalfWords, halves_ + skipped_ + i);
    const Floats numbers = hn::ConvertTo(simd::kFloats, hn::PromoteTo(simd::kInts, halves));
    return hn::MulAdd(numbers, simd::splat(0x1p-16F), simd::splat(0x1p-17F));
  }

 private:
  static constexpr std::size_t kHalvesPerBlock = 8;
  static constexpr std::size_t kHalvesPerDraw = 2 * simd::DropoutWords::kWords;

  simd::DropoutWords words_;
  std::size_t skipped_ = 0;
  // The last draw and the last vectors may pass the chunk's end.
  std::uint16_t halves_[kChunk + kHalvesPerBlock + kHalvesPerDraw + simd::kCodes] = {};
};

// Codes of `count` elements, and codes of zero up to the next multiple of kCodes.
// round(product arguments, i) gives kLanes codes, unclipped.
template <typename Round>
void make_codes(const float* x,
                const float* factors,
                std::size_t count,
                std::uint8_t* codes,
                int bits,
                const Round& round) {
  const simd::Bytes largest =
      hn::Set(simd::kBytes, static_cast<std::uint8_t>((1U << static_cast<unsigned>(bits)) - 1));
  const auto make_block = [&](const float* values, const float* by, std::size_t i) {
    const auto vector = [&](std::size_t k) {
      const std::size_t at = k * simd::kLanes;
      return round(simd::load(values + at), simd::load(by + at), i + at);
    };
    const simd::Bytes block = simd::join(vector(0), vector(1), vector(2), vector(3));
    hn::StoreU(hn::Min(block, largest), simd::kBytes, codes + i);
  };
  std::size_t i = 0;
  for (; i + simd::kCodes <= count; i += simd::kCodes) {
    make_block(x + i, factors + i, i);
  }
  if (i < count) {
    std::array<float, simd::kCodes> rest{};
    std::array<float, simd::kCodes> rest_factors{};
    std::memcpy(rest.data(), x + i, (count - i) * sizeof(float));
    std::memcpy(rest_factors.data(), factors + i, (count - i) * sizeof(float));
    make_block(rest.data(), rest_factors.data(), i);
  }
}

// Elements to codes to packed codes.
class Packer {
 public:
  Packer(const Quantize& args, std::size_t columns)
      : bits_(args.to.format.bits),
        columns_(columns),
        row_bytes_(static_cast<std::size_t>(args.to.packed.dim(1))),
        packed_(args.to.packed.data<std::uint8_t>()),
        key_(args.stochastic) {}

  [[nodiscard]] float levels() const { return static_cast<float>(1U << (bits_ - 1U)); }

  // Quantizes a strip's elements x; factors_of(first, count) points to a chunk's factors.
  template <typename FactorsOf>
  void pack(const Strip& strip, const float* x, const FactorsOf& factors_of) const {
    std::uint8_t* row = packed_ + strip.row * row_bytes_;
    for_each_chunk(strip.count, [&](std::size_t first, std::size_t count) {
      alignas(64) std::uint8_t codes[kChunk];
      const std::size_t column = strip.column + first;
      round(x + first, factors_of(first, count), strip.row * columns_ + column, {codes, count});
      std::uint8_t* to = row + column * bits_ / 8;
      bits_ == 8   ? simd::pack_all<8>(codes, count, to)
      : bits_ == 4 ? simd::pack_all<4>(codes, count, to)
                   : simd::pack_all<2>(codes, count, to);
    });
  }

 private:
  void round(const float* x,
             const float* factors,
             std::size_t first_element,
             std::span<std::uint8_t> codes) const {
    const Floats to_code = simd::splat(simd::kRounder + levels());
    const int bits = static_cast<int>(bits_);
    if (!key_) {
      make_codes(
          x, factors, codes.size(), codes.data(), bits, [&](Floats a, Floats b, std::size_t) {
            return simd::integers(hn::MulAdd(a, b, to_code));
          });
      return;
    }
    RandomOffsets offsets(*key_);
    offsets.draw(first_element, codes.size());
    make_codes(
        x, factors, codes.size(), codes.data(), bits, [&](Floats a, Floats b, std::size_t i) {
          return simd::integers(hn::Add(hn::Floor(hn::MulAdd(a, b, offsets.vector(i))), to_code));
        });
  }

  unsigned bits_;
  std::size_t columns_;
  std::size_t row_bytes_;
  std::uint8_t* packed_;
  std::optional<RoundingKey> key_;
};

// Stores the scales of `count` maxima, and their factors, whole vectors of them. `maxima` holds
// whole vectors.
void store_scales(
    const std::int32_t* maxima, std::size_t count, float levels, BFloat16* scales, float* factors) {
  simd::for_each_vector(count, [&](std::size_t i, auto part) {
    const auto [scale, factor] = simd::scales_of(hn::LoadU(simd::kInts, maxima + i), levels);
    simd::store(scale, scales + i, part);
    simd::store(factor, factors + i);
  });
}

std::size_t whole_vectors(std::size_t count) {
  return (count + simd::kLanes - 1) / simd::kLanes * simd::kLanes;
}

void quantize_groups(StreamView stream,
                     const Source& source,
                     const Strips& strips,
                     std::size_t group,
                     const Packer& packer,
                     BFloat16* scales) {
  const std::size_t groups_per_row = (strips.columns + group - 1) / group;
  for_each_strip(stream, strips, Order::forwards, [&](const Strip& strip) {
    constexpr std::size_t kMaxGroups = Strips::kElements + simd::kLanes;
    alignas(64) std::int32_t maxima[kMaxGroups];
    alignas(64) float group_factors[kMaxGroups];
    const float* x = source.make(strip.row * strips.columns + strip.column, strip.count);
    const std::size_t num_groups = (strip.count + group - 1) / group;
    for (std::size_t g = 0; g < num_groups; ++g) {
      maxima[g] = simd::max_magnitude(x + g * group, std::min(group, strip.count - g * group));
    }
    std::fill_n(maxima + num_groups, whole_vectors(num_groups) - num_groups, 0);
    BFloat16* to = scales + strip.row * groups_per_row + strip.column / group;
    store_scales(maxima, num_groups, packer.levels(), to, group_factors);
    ChunkFactors factors;
    packer.pack(strip, x, [&](std::size_t first, std::size_t count) {
      spread_factors(
          group, first, count, [&](std::size_t g) { return group_factors[g]; }, factors);
      return static_cast<const float*>(factors);
    });
  });
}

// maxima[c] = max |x[row][c]| over the rows, for the columns of a panel.
void column_maxima(const Source& source,
                   std::size_t columns,
                   const Strip& panel,
                   std::size_t num_rows,
                   std::int32_t* maxima) {
  std::fill_n(maxima, whole_vectors(panel.count), 0);
  for (std::size_t row = 0; row < num_rows; row += kRowsAtOnce) {
    const std::size_t rows = std::min(kRowsAtOnce, num_rows - row);
    const float* x[kRowsAtOnce];
    for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
      const std::size_t at = panel.row + row + std::min(k, rows - 1);  // the last again: harmless
      x[k] = source.values(at * columns + panel.column);
      if (k < rows) {
        source.make(at * columns + panel.column, panel.count);
      }
    }
    simd::for_each_vector(panel.count, [&](std::size_t c, auto part) {
      simd::Ints largest = hn::LoadU(simd::kInts, maxima + c);
      for (const float* values : x) {
        largest = hn::Max(largest, simd::magnitude(simd::load(values + c, part)));
      }
      hn::StoreU(largest, simd::kInts, maxima + c);
    });
  }
}

// Distance of two blocks' maxima, in elements: room for whole vectors behind the last column.
std::int64_t padded(std::int64_t columns) {
  return columns + static_cast<std::int64_t>(simd::kLanes);
}

void column_scales(StreamView stream,
                   const Source& source,
                   const Strips& strips,
                   const Packer& packer,
                   const Quantize& args,
                   const Tensor& factors) {
  const RowBlocks blocks(args.x.dim(0));
  const auto num_blocks = static_cast<std::int64_t>(blocks.num_blocks);
  const auto stride = static_cast<std::size_t>(padded(args.x.dim(1)));
  ArenaScope scratch(stream.workspace());
  const Tensor partials = scratch.allocate(DType::i32, {num_blocks, padded(args.x.dim(1))});
  auto* maxima = partials.data<std::int32_t>();
  const std::size_t num_panels = (strips.columns + kColumnsPerPanel - 1) / kColumnsPerPanel;
  const auto find = [&](std::size_t task, int /*thread*/) {
    const std::size_t block = task / num_panels;
    const std::size_t column = task % num_panels * kColumnsPerPanel;
    const Strip panel{
        blocks.begin(block), column, std::min(kColumnsPerPanel, strips.columns - column)};
    // Panels are whole vectors, but for the last one.
    column_maxima(source,
                  strips.columns,
                  panel,
                  blocks.end(block) - panel.row,
                  maxima + block * stride + column);
  };
  stream.pool().parallel_for(blocks.num_blocks * num_panels, find);
  const auto combine = [&](std::size_t begin, std::size_t end) {
    alignas(64) std::int32_t all[kColumnsPerPanel] = {};
    for (std::size_t block = 0; block < blocks.num_blocks; ++block) {
      const std::int32_t* from = maxima + block * stride + begin;
      for (std::size_t c = 0; c < end - begin; ++c) {
        all[c] = std::max(all[c], from[c]);
      }
    }
    store_scales(all,
                 end - begin,
                 packer.levels(),
                 args.to.scales.data<BFloat16>() + begin,
                 factors.data<float>() + begin);
  };
  parallel_ranges(stream, strips.columns, kColumnsPerPanel, combine);
}

void quantize_columns(StreamView stream,
                      const Source& source,
                      const Strips& strips,
                      const Packer& packer,
                      const Quantize& args) {
  ArenaScope scratch(stream.workspace());
  const Tensor all_factors = scratch.allocate(DType::f32, {padded(args.x.dim(1))});
  column_scales(stream, source, strips, packer, args, all_factors);
  const float* factors = all_factors.data<float>();
  for_each_strip(stream, strips, Order::backwards, [&](const Strip& strip) {
    packer.pack(
        strip,
        source.values(strip.row * strips.columns + strip.column),
        [&](std::size_t first, std::size_t /*count*/) { return factors + strip.column + first; });
  });
}

void quantize_whole(StreamView stream,
                    const Source& source,
                    const Strips& strips,
                    const Packer& packer,
                    BFloat16* scale) {
  const std::size_t count = strips.rows * strips.columns;
  std::vector<std::int32_t> maxima((count + kElementsPerMaximum - 1) / kElementsPerMaximum);
  parallel_ranges(stream, count, kElementsPerMaximum, [&](std::size_t begin, std::size_t end) {
    maxima[begin / kElementsPerMaximum] =
        simd::max_magnitude(source.make(begin, end - begin), end - begin);
  });
  std::array<std::int32_t, simd::kLanes> largest{};
  for (const std::int32_t maximum : maxima) {
    largest[0] = std::max(largest[0], maximum);
  }
  std::array<float, simd::kLanes> factor{};
  store_scales(largest.data(), 1, packer.levels(), scale, factor.data());
  for_each_strip(stream, strips, Order::backwards, [&](const Strip& strip) {
    ChunkFactors factors;
    std::fill_n(factors, std::min(kChunk, strip.count), factor[0]);
    packer.pack(strip,
                source.values(strip.row * strips.columns + strip.column),
                [&](std::size_t /*first*/, std::size_t /*count*/) {
                  return static_cast<const float*>(factors);
                });
  });
}

}  // namespace

void quantize(StreamView stream, const Quantize& args) {
  const auto rows = static_cast<std::size_t>(args.x.dim(0));
  const auto columns = static_cast<std::size_t>(args.x.dim(1));
  const Source source{args.x.data<float>(), args.sum.empty() ? nullptr : args.sum.data<float>()};
  const Packer packer(args, columns);
  switch (args.to.format.shared) {
    case SharedScale::column:
      return quantize_columns(stream, source, Strips(rows, columns, 1), packer, args);
    case SharedScale::row:
    case SharedScale::group: {
      const std::size_t group = group_size(args.to.format, columns);
      return quantize_groups(stream,
                             source,
                             Strips(rows, columns, group),
                             group,
                             packer,
                             args.to.scales.data<BFloat16>());
    }
    case SharedScale::matrix:
      return quantize_whole(
          stream, source, Strips(rows, columns, 1), packer, args.to.scales.data<BFloat16>());
  }
}

}  // namespace slackline::cpu

namespace slackline {

std::size_t quantize_workspace_bytes(SharedScale shared, std::int64_t rows, std::int64_t columns) {
  if (shared != SharedScale::column) {
    return 0;
  }
  const auto num_blocks = static_cast<std::int64_t>(RowBlocks(rows).num_blocks);
  return Arena::aligned_bytes(DType::i32, {num_blocks, cpu::padded(columns)}) +
         Arena::aligned_bytes(DType::f32, {cpu::padded(columns)});
}

}  // namespace slackline
