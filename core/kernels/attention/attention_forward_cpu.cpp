#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/kernels/attention/attention_head.h"
#include "core/kernels/philox_simd.h"
// After simd.h, which configures Highway.
#include <hwy/contrib/math/math-inl.h>

// Scores are kept transposed, keys down and a panel of kColumns queries across:
//
//   for each panel of queries, Q^T packed and scaled:
//     for each block of keys that some of them may see:
//       S = K Q^T                       (keys x queries)
//       online softmax down the columns, causal mask where the block meets the diagonal
//       O^T = O^T * exp(old max - new max) + V^T P     (channels x queries)
//     output = O^T / sum, transposed
//
// So the softmax has no sums across lanes, and P is at once the packed panel of the next product.
// A task is a head and a range of its queries; the ranges depend on T alone.
namespace slackline::attention {

namespace {

namespace hn = simd::hn;
using gemm::kLanes;
using gemm::kVectors;
using simd::Floats;
using simd::kFloats;

constexpr std::size_t kKeyBlock = 12 * kRows;  // scores of one block stay in the first-level cache
constexpr std::size_t kPanelsPerTask = 10;     // packs a head's keys once for so many panels

// A thread's scratch.
struct Scratch {
  Scratch(float* base, const HeadSize& size) : pieces(base) {
    key_strips = pieces.take(size.T_strips * size.D);
    value_strips = pieces.take(size.T_strips * size.D_strips);
    queries = pieces.take(kColumns * size.D);
    scores = pieces.take(kKeyBlock * kColumns);
    output = pieces.take(size.D_lanes * kColumns);
    rows = pieces.take(size.D_lanes * kColumns);
    drawn = pieces.take(kKeyBlock * kColumns);
    factors = pieces.take(kKeyBlock * kColumns);
  }

  Pieces pieces;
  float* key_strips;
  float* value_strips;
  float* queries;
  float* scores;
  float* output;  // O^T
  float* rows;
  float* drawn;    // dropout factors by query
  float* factors;  // and by key
};

// The statistics of each query of the panel, so far.
struct Softmax {
  Floats most[kVectors];
  Floats sum[kVectors];
};

// Keys [key, key + count) against queries [query, query + kColumns).
struct Block {
  std::size_t query = 0;
  std::size_t key = 0;
  std::size_t count = 0;    // of keys, whole strips
  std::size_t vectors = 0;  // of queries

  [[nodiscard]] bool needs_mask() const { return key + count > query; }

  // Scores of key row `k` that query lanes of vector j must not see become -infinity.
  [[nodiscard]] Floats masked(Floats scores, std::size_t k, std::size_t j) const {
    if (key + k <= query) {
      return scores;
    }
    const Floats lane = hn::Iota(kFloats, static_cast<float>(j * kLanes));
    const Floats first_allowed = simd::splat(static_cast<float>(key + k - query));
    return hn::IfThenElse(hn::Lt(lane, first_allowed), simd::splat(-INFINITY), scores);
  }
};

// Turns scores into exp(score - new max), and returns what earlier sums are to be scaled by.
void advance(Softmax& softmax, const Block& block, float* scores, Floats* kept) {
  for (std::size_t j = 0; j < block.vectors; ++j) {
    float* column = scores + j * kLanes;
    Floats most = softmax.most[j];
    for (std::size_t k = 0; k < block.count; ++k) {
      Floats score = hn::Load(kFloats, column + k * kColumns);
      if (block.needs_mask()) {
        score = block.masked(score, k, j);
        hn::Store(score, kFloats, column + k * kColumns);
      }
      most = hn::Max(most, score);
    }
    kept[j] = hn::Exp(kFloats, hn::Sub(softmax.most[j], most));
    softmax.most[j] = most;
    Floats sum = hn::Mul(softmax.sum[j], kept[j]);
    for (std::size_t k = 0; k < block.count; ++k) {
      const Floats score = hn::Load(kFloats, column + k * kColumns);
      const Floats weight = hn::Exp(kFloats, hn::Sub(score, most));
      sum = hn::Add(sum, weight);
      hn::Store(weight, kFloats, column + k * kColumns);
    }
    softmax.sum[j] = sum;
  }
}

// scores *= dropout factors. A query's elements follow each other by key, so they are drawn by
// query and transposed.
void drop(const simd::DropoutFactors& factors,
          std::uint64_t first_row,  // head * T
          const HeadSize& size,
          const Block& block,
          const Scratch& scratch) {
  const std::size_t queries = std::min(kColumns, size.T - block.query);
  for (std::size_t q = 0; q < queries; ++q) {
    const std::uint64_t element = (first_row + block.query + q) * size.T + block.key;
    factors.draw(element, {scratch.drawn + q * kKeyBlock, block.count});
  }
  const gemm::Source<float> drawn{scratch.drawn, kKeyBlock, gemm::Order::j_rows};
  gemm::pack<kColumns>(drawn, block.count, queries, scratch.factors);
  for (std::size_t i = 0; i < block.count * kColumns; i += kLanes) {
    const Floats weight = hn::Load(kFloats, scratch.scores + i);
    const Floats factor = hn::Load(kFloats, scratch.factors + i);
    hn::Store(hn::Mul(weight, factor), kFloats, scratch.scores + i);
  }
}

void multiply_keys(const HeadSize& size, const Block& block, const Scratch& scratch) {
  for (std::size_t k = 0; k < block.count; k += kRows) {
    gemm::multiply_tile({.strip = scratch.key_strips + (block.key + k) * size.D,
                         .panel = scratch.queries,
                         .K = size.D,
                         .c = scratch.scores + k * kColumns,
                         .c_stride = kColumns,
                         .vectors = block.vectors});
  }
}

void multiply_values(const HeadSize& size,
                     std::size_t padded_keys,
                     const Block& block,
                     const Scratch& scratch) {
  for (std::size_t d = 0; d < size.D; d += kRows) {
    gemm::multiply_tile({.strip = scratch.value_strips + d * padded_keys + block.key * kRows,
                         .panel = scratch.scores,
                         .K = block.count,
                         .c = scratch.output + d * kColumns,
                         .c_stride = kColumns,
                         .init = block.key == 0 ? gemm::Init::zero : gemm::Init::add,
                         .vectors = block.vectors});
  }
}

void scale_columns(const HeadSize& size,
                   std::size_t vectors,
                   const Floats* factors,
                   float* output) {
  for (std::size_t d = 0; d < size.D; ++d) {
    for (std::size_t j = 0; j < vectors; ++j) {
      float* at = output + d * kColumns + j * kLanes;
      hn::Store(hn::Mul(hn::Load(kFloats, at), factors[j]), kFloats, at);
    }
  }
}

// One head's queries [begin, end).
template <typename T>
class HeadForward {
 public:
  HeadForward(const AttentionForward& args, HeadIndex head, const HeadSize& size, float* scratch)
      : size_(size),
        scratch_(scratch, size),
        queries_(part_of<T>(args.qkv, size.D, Part::query, head)),
        keys_(part_of<T>(args.qkv, size.D, Part::key, head)),
        values_(part_of<T>(args.qkv, size.D, Part::value, head)),
        output_(head_of<T>(args.output, size.D, head)),
        log_sum_exp_(args.log_sum_exp.data<float>() +
                     (head.b * static_cast<std::size_t>(args.num_heads) + head.h) * size.T),
        drops_(args.dropout.probability > 0.0F),
        factors_(args.dropout, args.dropout.first_sample + head.b),
        first_row_((static_cast<std::uint64_t>(args.first_head) + head.h) * size.T) {}

  void run(std::size_t begin, std::size_t end) {
    num_keys_ = end;
    pack_time_strips(keys_, num_keys_, size_.D, scratch_.key_strips);
    pack_channel_strips(values_, num_keys_, size_.D, scratch_.value_strips);
    for (std::size_t query = begin; query < end; query += kColumns) {
      attend(query, std::min(kColumns, end - query));
    }
  }

 private:
  void attend(std::size_t query, std::size_t count) {
    gemm::pack<kColumns>(queries_.across_time(query), size_.D, count, scratch_.queries);
    simd::scale_elements(scratch_.queries, size_.D * kColumns, score_scale(size_.D));
    Softmax softmax{};
    std::fill_n(softmax.most, kVectors, simd::splat(-INFINITY));
    const std::size_t keys = rounded_up(query + count, kRows);  // that some query may see
    for (std::size_t key = 0; key < keys; key += kKeyBlock) {
      const Block block{.query = query,
                        .key = key,
                        .count = std::min(kKeyBlock, keys - key),
                        .vectors = gemm::vectors_for(count)};
      multiply_keys(size_, block, scratch_);
      Floats kept[kVectors];
      advance(softmax, block, scratch_.scores, kept);
      if (drops_) {
        drop(factors_, first_row_, size_, block, scratch_);
      }
      if (key > 0) {
        scale_columns(size_, block.vectors, kept, scratch_.output);
      }
      multiply_values(size_, rounded_up(num_keys_, kRows), block, scratch_);
    }
    finish(query, count, softmax);
  }

  void finish(std::size_t query, std::size_t count, const Softmax& softmax) {
    const std::size_t vectors = gemm::vectors_for(count);
    Floats inverse[kVectors];
    alignas(64) float log_sums[kColumns];
    for (std::size_t j = 0; j < vectors; ++j) {
      inverse[j] = hn::Div(simd::splat(1.0F), softmax.sum[j]);
      const Floats log_sum = hn::Add(softmax.most[j], hn::Log(kFloats, softmax.sum[j]));
      hn::Store(log_sum, kFloats, log_sums + j * kLanes);
    }
    scale_columns(size_, vectors, inverse, scratch_.output);
    std::copy(log_sums, log_sums + count, log_sum_exp_ + query);
    write_rows<T>({scratch_.output, kColumns, scratch_.rows},
                  size_,
                  count,
                  {output_.row(query), output_.stride});
  }

  const HeadSize& size_;
  Scratch scratch_;
  Rows<T> queries_, keys_, values_, output_;
  float* log_sum_exp_;
  bool drops_;
  simd::DropoutFactors factors_;
  std::uint64_t first_row_;
  std::size_t num_keys_ = 0;
};

}  // namespace

std::size_t forward_scratch_elements(const HeadSize& size) {
  return Scratch(nullptr, size).pieces.used();
}

}  // namespace slackline::attention

namespace slackline::cpu {

template <typename T>
void attention_forward(StreamView stream, const AttentionForward& args) {
  using attention::HeadSize;
  const auto B = static_cast<std::size_t>(args.qkv.dim(0));
  const auto H = static_cast<std::size_t>(args.num_heads);
  const HeadSize size(static_cast<std::size_t>(args.qkv.dim(1)),
                      static_cast<std::size_t>(args.qkv.dim(2)) / (3 * H));
  const std::size_t elements = attention::forward_scratch_elements(size);
  ArenaScope scope(stream.workspace());
  float* scratch =
      scope
          .allocate(DType::f32,
                    Shape{stream.pool().num_threads(), static_cast<std::int64_t>(elements)})
          .template data<float>();
  constexpr std::size_t kRange = attention::kPanelsPerTask * attention::kColumns;
  const std::size_t ranges = (size.T + kRange - 1) / kRange;
  stream.pool().parallel_for(B * H * ranges, [&](std::size_t task, int thread) {
    // The last ranges see the most keys; they come first, so that no thread ends on a long one.
    const std::size_t begin = (ranges - 1 - task / (B * H)) * kRange;
    const attention::HeadIndex head{.b = task % (B * H) / H, .h = task % H};
    attention::HeadForward<T>(
        args, head, size, scratch + static_cast<std::size_t>(thread) * elements)
        .run(begin, std::min(size.T, begin + kRange));
  });
}

template void attention_forward<float>(StreamView, const AttentionForward&);
template void attention_forward<BFloat16>(StreamView, const AttentionForward&);

}  // namespace slackline::cpu
