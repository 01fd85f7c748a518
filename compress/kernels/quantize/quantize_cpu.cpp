#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "compress/kernels/quantize/quantize.h"
#include "compress/kernels/quantize/quantize_pack.h"
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
constexpr std::size_t kPrefetched = 1024;  // elements ahead: a page

// What is quantized: x, or where there is a sum the sum with x added to it.
struct Source {
  const float* x;
  float* sum;  // null: none

  // The elements from `first` on, once the sum is made.
  [[nodiscard]] const float* values(std::size_t first) const {
    return sum == nullptr ? x + first : sum + first;
  }

  // What is read after a strip of `count` elements from `first` on.
  [[nodiscard]] Ahead ahead(std::size_t first, std::size_t count) const {
    const float* next = x + first + count;
    return {next, sum == nullptr ? next : sum + first + count};
  }

  // Makes the sum of these elements.
  const float* make(std::size_t first, std::size_t count) const {
    if (sum != nullptr) {
      simd::for_each_vector(count, [&](std::size_t i, auto part) {
        hwy::Prefetch(x + first + i + kPrefetched);  // a hint, harmless beyond the end
        hwy::Prefetch(sum + first + i + kPrefetched);
        const Floats total =
            hn::Add(simd::load(sum + first + i, part), simd::load(x + first + i, part));
        simd::store(total, sum + first + i, part);
      });
    }
    return values(first);
  }
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

// Distance of two blocks' maxima, in elements: room for whole vectors behind the last column.
std::int64_t padded(std::int64_t columns) {
  return columns + static_cast<std::int64_t>(simd::kLanes);
}

std::size_t whole_vectors(std::size_t count) {
  return (count + simd::kLanes - 1) / simd::kLanes * simd::kLanes;
}

// maxima[c] = max |x[row][c]| over the rows, for the columns of a panel.
void find_column_maxima(const Source& source,
                        std::size_t columns,
                        const Strip& panel,
                        std::size_t num_rows,
                        std::int32_t* maxima) {
  std::fill_n(maxima, whole_vectors(panel.count), 0);
  const std::size_t ahead = kRowsAtOnce * columns;
  for (std::size_t row = 0; row < num_rows; row += kRowsAtOnce) {
    const float* x[kRowsAtOnce];
    for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
      const std::size_t at = panel.row + std::min(row + k, num_rows - 1);
      const bool is_new = row + k < num_rows;  // else the last row once more: harmless
      const std::size_t first = at * columns + panel.column;
      x[k] = is_new ? source.make(first, panel.count) : source.values(first);
    }
    simd::for_each_vector(panel.count, [&](std::size_t c, auto part) {
      simd::Ints largest = hn::LoadU(simd::kInts, maxima + c);
      for (const float* values : x) {
        hwy::Prefetch(values + ahead + c);
        largest = hn::Max(largest, simd::magnitude(simd::load(values + c, part)));
      }
      hn::StoreU(largest, simd::kInts, maxima + c);
    });
  }
}

// Adds the squares of the rows of a panel to those of its columns, in double: of_columns, which
// are set, and one number for each row.
void add_squares(const Source& source,
                 std::size_t columns,
                 const Strip& panel,
                 std::size_t num_rows,
                 double* of_columns,
                 double* of_rows) {
  constexpr std::size_t kSums = 8;  // of a row, independent, to hide the latency
  std::fill_n(of_columns, panel.count, 0.0);
  for (std::size_t row = 0; row < num_rows; ++row) {
    const float* x = source.make((panel.row + row) * columns + panel.column, panel.count);
    std::array<double, kSums> sums{};
    const auto add = [&](std::size_t c, std::size_t k) {
      const double square = static_cast<double>(x[c]) * static_cast<double>(x[c]);
      of_columns[c] += square;
      sums[k] += square;
    };
    std::size_t c = 0;
    for (; c + kSums <= panel.count; c += kSums) {
      for (std::size_t k = 0; k < kSums; ++k) {
        add(c + k, k);
      }
    }
    for (; c < panel.count; ++c) {
      add(c, 0);
    }
    of_rows[row] = std::accumulate(sums.begin(), sums.end(), 0.0);
  }
}

class Quantizer {
 public:
  Quantizer(StreamView stream, const Quantize& args)
      : stream_(stream),
        source_{args.x.data<float>(), args.sum.empty() ? nullptr : args.sum.data<float>()},
        rows_(static_cast<std::size_t>(args.x.dim(0))),
        columns_(static_cast<std::size_t>(args.x.dim(1))),
        scales_(args.to.scales.data<BFloat16>()),
        packer_(args, columns_) {}

  void quantize_groups(std::size_t group) const {
    const std::size_t groups_per_row = (columns_ + group - 1) / group;
    const Strips strips(rows_, columns_, group);
    for_each_strip(stream_, strips, Order::forwards, [&](const Strip& strip) {
      constexpr std::size_t kMaxGroups = Strips::kElements + simd::kLanes;
      alignas(64) std::int32_t maxima[kMaxGroups];
      alignas(64) float group_factors[kMaxGroups];
      const float* x = source_.make(strip.row * columns_ + strip.column, strip.count);
      const std::size_t num_groups = (strip.count + group - 1) / group;
      for (std::size_t g = 0; g < num_groups; ++g) {
        maxima[g] = simd::max_magnitude(x + g * group, std::min(group, strip.count - g * group));
      }
      std::fill_n(maxima + num_groups, whole_vectors(num_groups) - num_groups, 0);
      BFloat16* to = scales_ + strip.row * groups_per_row + strip.column / group;
      store_scales(maxima, num_groups, packer_.levels(), to, group_factors);
      ChunkFactors factors;
      const auto factor_of = [&](std::size_t g) { return group_factors[g]; };
      pack(strip, [&](std::size_t first, std::size_t count) {
        spread_factors(group, first, count, factor_of, factors);
        return static_cast<const float*>(factors);
      });
    });
  }

  void quantize_columns() const {
    ArenaScope scratch(stream_.workspace());
    const auto width = padded(static_cast<std::int64_t>(columns_));
    const float* factors = column_scales(scratch.allocate(DType::f32, {width}));
    for_each_strip(stream_, Strips(rows_, columns_, 1), Order::backwards, [&](const Strip& strip) {
      pack(strip, [&](std::size_t first, std::size_t /*count*/) {
        return factors + strip.column + first;
      });
    });
  }

  void quantize_both(int bits) const {
    ArenaScope scratch(stream_.workspace());
    const auto width = padded(static_cast<std::int64_t>(columns_));
    const Tensor rows = scratch.allocate(DType::f32, {static_cast<std::int64_t>(rows_)});
    const Tensor columns = scratch.allocate(DType::f32, {width});
    make_both_scales(normal_reach(bits), rows.span<float>(), columns.span<float>());
    const float* of_rows = rows.data<float>();
    const float* of_columns = columns.data<float>();
    for_each_strip(stream_, Strips(rows_, columns_, 1), Order::backwards, [&](const Strip& strip) {
      ChunkFactors factors;
      const Floats row = simd::splat(of_rows[strip.row]);
      pack(strip, [&](std::size_t first, std::size_t count) {
        const float* from = of_columns + strip.column + first;
        simd::for_each_vector(count, [&](std::size_t i, auto part) {
          simd::store(hn::Mul(row, simd::load(from + i, part)), factors + i, part);
        });
        return static_cast<const float*>(factors);
      });
    });
  }

  void quantize_whole() const {
    alignas(64) std::int32_t maxima[simd::kLanes] = {max_of_all()};
    float factor[simd::kLanes];
    store_scales(maxima, 1, packer_.levels(), scales_, factor);
    for_each_strip(stream_, Strips(rows_, columns_, 1), Order::backwards, [&](const Strip& strip) {
      ChunkFactors factors;
      std::fill_n(factors, std::min(kChunk, strip.count), factor[0]);
      pack(strip, [&](std::size_t /*first*/, std::size_t /*count*/) {
        return static_cast<const float*>(factors);
      });
    });
  }

 private:
  template <typename FactorsOf>
  void pack(const Strip& strip, const FactorsOf& factors_of) const {
    const std::size_t first = strip.row * columns_ + strip.column;
    packer_.pack(strip, source_.values(first), source_.ahead(first, strip.count), factors_of);
  }

  [[nodiscard]] std::int32_t max_of_all() const {
    const std::size_t count = rows_ * columns_;
    std::vector<std::int32_t> maxima((count + kElementsPerMaximum - 1) / kElementsPerMaximum);
    parallel_ranges(stream_, count, kElementsPerMaximum, [&](std::size_t begin, std::size_t end) {
      std::int32_t& largest = maxima[begin / kElementsPerMaximum];
      for_each_chunk(end - begin, [&](std::size_t first, std::size_t size) {
        const float* x = source_.make(begin + first, size);
        largest = std::max(largest, simd::max_magnitude(x, size));
      });
    });
    std::int32_t largest = 0;
    for (const std::int32_t maximum : maxima) {
      largest = std::max(largest, maximum);
    }
    return largest;
  }

  // Stores the scales of rows and columns, and their factors, whose product is an element's.
  void make_both_scales(double reach,
                        std::span<float> row_factors,
                        std::span<float> column_factors) const {
    const RowBlocks blocks(static_cast<std::int64_t>(rows_));
    const std::size_t num_panels = (columns_ + kColumnsPerPanel - 1) / kColumnsPerPanel;
    ArenaScope scope(stream_.workspace());
    double* of_columns = doubles(scope, blocks.num_blocks * columns_);
    double* of_rows = doubles(scope, num_panels * rows_);
    stream_.pool().parallel_for(
        blocks.num_blocks * num_panels, [&](std::size_t task, int /*thread*/) {
          const std::size_t block = task / num_panels;
          const std::size_t panel = task % num_panels;
          const std::size_t column = panel * kColumnsPerPanel;
          const Strip strip{
              blocks.begin(block), column, std::min(kColumnsPerPanel, columns_ - column)};
          add_squares(source_,
                      columns_,
                      strip,
                      blocks.end(block) - strip.row,
                      of_columns + block * columns_ + column,
                      of_rows + panel * rows_ + strip.row);
        });
    double all = 0.0;
    for (std::size_t row = 0; row < rows_; ++row) {
      double squares = 0.0;
      for (std::size_t panel = 0; panel < num_panels; ++panel) {
        squares += of_rows[panel * rows_ + row];
      }
      of_rows[row] = squares;
      all += squares;
    }
    const BothScales scales{.reach = reach,
                            .rows = static_cast<double>(rows_),
                            .columns = static_cast<double>(columns_),
                            .all = all};
    for (std::size_t row = 0; row < rows_; ++row) {
      scales_[row] = scales.of_row(of_rows[row]);
      row_factors[row] = factor_of(scales_[row], packer_.levels());
    }
    for (std::size_t c = 0; c < columns_; ++c) {
      double squares = 0.0;
      for (std::size_t block = 0; block < blocks.num_blocks; ++block) {
        squares += of_columns[block * columns_ + c];
      }
      scales_[rows_ + c] = scales.of_column(squares);
      column_factors[c] = factor_of(scales_[rows_ + c], 1.0F);
    }
  }

  // Makes scales of sums of squares.
  struct BothScales {
    double reach;
    double rows;
    double columns;
    double all;

    [[nodiscard]] BFloat16 of_row(double squares) const {
      return rounded(reach * std::sqrt(squares / columns), 0x1p-66);
    }

    [[nodiscard]] BFloat16 of_column(double squares) const {
      return rounded(all > 0.0 ? std::sqrt(squares / rows / (all / (rows * columns))) : 0.0,
                     0x1p-52);
    }

    [[nodiscard]] BFloat16 rounded(double scale, double smallest) const {
      if (!(all < 0x1p254)) {
        return BFloat16(std::numeric_limits<float>::quiet_NaN());
      }
      return BFloat16(scale < smallest ? 0.0F : static_cast<float>(scale));
    }
  };

  // Returns levels / scale; 0 where the scale is 0 or NaN.
  static float factor_of(BFloat16 scale, float levels) {
    const auto value = static_cast<float>(scale);
    return value > 0.0F ? levels / value : 0.0F;
  }

  static double* doubles(ArenaScope& scope, std::size_t count) {
    return scope.allocate(DType::f64, {static_cast<std::int64_t>(count)}).data<double>();
  }

  // Stores the columns' scales and returns their factors, made in `scratch`.
  [[nodiscard]] const float* column_scales(const Tensor& scratch) const {
    const RowBlocks blocks(static_cast<std::int64_t>(rows_));
    const auto num_blocks = static_cast<std::int64_t>(blocks.num_blocks);
    const std::int64_t stride = scratch.dim(0);
    ArenaScope scope(stream_.workspace());
    const Tensor partials = scope.allocate(DType::i32, {num_blocks, stride});
    auto* maxima = partials.data<std::int32_t>();
    const std::size_t num_panels = (columns_ + kColumnsPerPanel - 1) / kColumnsPerPanel;
    const auto find = [&](std::size_t task, int /*thread*/) {
      const std::size_t block = task / num_panels;
      const std::size_t column = task % num_panels * kColumnsPerPanel;  // on whole vectors
      const Strip panel{blocks.begin(block), column, std::min(kColumnsPerPanel, columns_ - column)};
      std::int32_t* to = maxima + block * static_cast<std::size_t>(stride) + column;
      find_column_maxima(source_, columns_, panel, blocks.end(block) - panel.row, to);
    };
    stream_.pool().parallel_for(blocks.num_blocks * num_panels, find);
    auto* factors = scratch.data<float>();
    parallel_ranges(stream_, columns_, kColumnsPerPanel, [&](std::size_t begin, std::size_t end) {
      alignas(64) std::int32_t all[kColumnsPerPanel] = {};
      for (std::size_t block = 0; block < blocks.num_blocks; ++block) {
        const std::int32_t* from = maxima + block * static_cast<std::size_t>(stride) + begin;
        for (std::size_t c = 0; c < end - begin; ++c) {
          all[c] = std::max(all[c], from[c]);
        }
      }
      store_scales(all, end - begin, packer_.levels(), scales_ + begin, factors + begin);
    });
    return factors;
  }

  StreamView stream_;
  Source source_;
  std::size_t rows_;
  std::size_t columns_;
  BFloat16* scales_;
  CodePacker packer_;
};

}  // namespace

void quantize(StreamView stream, const Quantize& args) {
  const Quantizer quantizer(stream, args);
  switch (args.to.format.shared) {
    case ScaleOf::channel:
      return quantizer.quantize_columns();
    case ScaleOf::token:
    case ScaleOf::group:
      return quantizer.quantize_groups(
          group_size(args.to.format, static_cast<std::size_t>(args.x.dim(1))));
    case ScaleOf::tensor:
      return quantizer.quantize_whole();
    case ScaleOf::both:
      return quantizer.quantize_both(args.to.format.bits);
  }
}

std::size_t quantize_workspace_bytes(ScaleOf shared, std::int64_t rows, std::int64_t columns) {
  const auto num_blocks = static_cast<std::int64_t>(RowBlocks(rows).num_blocks);
  if (shared == ScaleOf::both) {
    const auto width = static_cast<std::int64_t>(kColumnsPerPanel);
    const std::int64_t panels = (columns + width - 1) / width;
    return Arena::aligned_bytes(DType::f32, {rows}) +
           Arena::aligned_bytes(DType::f32, {padded(columns)}) +
           Arena::aligned_bytes(DType::f64, {num_blocks * columns}) +
           Arena::aligned_bytes(DType::f64, {panels * rows});
  }
  if (shared != ScaleOf::channel) {
    return 0;
  }
  return Arena::aligned_bytes(DType::i32, {num_blocks, padded(columns)}) +
         Arena::aligned_bytes(DType::f32, {padded(columns)});
}

}  // namespace slackline::cpu
