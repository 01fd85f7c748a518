#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "compress/kernels/quantize/quantize.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"

// How quantize and dequantize walk over a matrix: strip by strip, a strip in chunks whose codes and
// factors (what elements are multiplied by) stay in the first-level cache.
namespace slackline {

// A part of a row.
struct Strip {
  std::size_t row = 0;
  std::size_t column = 0;  // the first
  std::size_t count = 0;
};

// Strips of neighbours in a row: whole groups that begin on whole bytes, some 4 KiB where groups
// are not larger. Depends on the shape alone.
struct Strips {
  static constexpr std::size_t kElements = 1024;
  static constexpr std::size_t kMultiple = 8;  // elements whose codes fill whole bytes, always

  // `group` elements of a row belong together.
  Strips(std::size_t num_rows, std::size_t num_columns, std::size_t group)
      : rows(num_rows), columns(num_columns), width(num_columns) {
    if (group < columns) {
      const std::size_t unit = std::lcm(group, kMultiple);
      width = std::min(columns, std::max<std::size_t>(1, kElements / unit) * unit);
    }
    per_row = (columns + width - 1) / width;
  }

  [[nodiscard]] Strip strip(std::size_t index) const {
    const std::size_t column = index % per_row * width;
    return {index / per_row, column, std::min(width, columns - column)};
  }

  std::size_t rows;
  std::size_t columns;
  std::size_t width;
  std::size_t per_row;
};

// The order in which tasks are begun. A second pass over a matrix begins where the first one ended:
// what is left of it in the caches is read before it goes.
enum class Order { forwards, backwards };

// Runs body(strip) for all, on the stream's threads.
template <typename Body>
void for_each_strip(StreamView stream, const Strips& strips, Order order, const Body& body) {
  const std::size_t count = strips.rows * strips.per_row;
  const std::size_t per_task = std::max<std::size_t>(1, 2 * kElementsPerTask / strips.width);
  const std::size_t num_tasks = (count + per_task - 1) / per_task;
  stream.pool().parallel_for(num_tasks, [&](std::size_t task, int /*thread*/) {
    const std::size_t begin = (order == Order::forwards ? task : num_tasks - 1 - task) * per_task;
    const std::size_t end = std::min(count, begin + per_task);
    for (std::size_t i = begin; i < end; ++i) {
      body(strips.strip(i));
    }
  });
}

inline constexpr std::size_t kChunk = 1024;

// Runs body(first, count) for the chunks of `count` elements.
template <typename Body>
void for_each_chunk(std::size_t count, const Body& body) {
  for (std::size_t first = 0; first < count; first += kChunk) {
    body(first, std::min(kChunk, count - first));
  }
}

// One factor for each element of a chunk; stores of whole vectors may pass its end.
using ChunkFactors = float[kChunk + simd::kLanes];

// Elements first .. first + count - 1 of a chunk, counted from its first one.
struct Run {
  std::size_t first = 0;
  std::size_t count = 0;
};

// Runs body(g, run) for the groups g of `group` neighbours in a row that elements
// first .. first + count - 1 of the row belong to.
template <typename Body>
void for_each_group(std::size_t group, std::size_t first, std::size_t count, const Body& body) {
  std::size_t index = first / group;
  for (std::size_t i = 0; i < count; ++index) {
    const std::size_t end = std::min(count, (index + 1) * group - first);
    body(index, Run{i, end - i});
    i = end;
  }
}

// factors[i] = value(g) for elements first + i of groups g.
template <typename Value>
void spread_factors(std::size_t group,
                    std::size_t first,
                    std::size_t count,
                    const Value& value,
                    ChunkFactors& factors) {
  for_each_group(group, first, count, [&](std::size_t index, const Run& run) {
    const simd::Floats factor = simd::splat(value(index));
    for (std::size_t i = run.first; i < run.first + run.count; i += simd::kLanes) {
      simd::store(factor, factors + i);
    }
  });
}

// Elements that share a factor with their neighbours in a row.
[[nodiscard]] inline std::size_t group_size(const QuantizedFormat& format, std::size_t columns) {
  return format.shared == ScaleOf::group ? std::min(static_cast<std::size_t>(format.group), columns)
                                         : columns;
}

}  // namespace slackline
