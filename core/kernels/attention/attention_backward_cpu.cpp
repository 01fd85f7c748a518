#include <algorithm>
#include <cstddef>

#include "core/kernels/attention/attention_head.h"
#include "core/kernels/philox_simd.h"
// After simd.h, which configures Highway.
#include <hwy/contrib/math/math-inl.h>

// A task is a head. Probabilities are made again, block by block, from the kept log of the sum of
// exponentials L; F are the dropout factors, delta = sum over d of dO * O:
//
//   P = exp(Q K^T - L)      dP = F (dO V^T)      dS = P (dP - delta)
//   dV^T += dO^T (P F)      dK^T += Q^T dS       dQ^T += K^T dS^T
//
// In a block, queries run down and panels of kColumns keys across, so P and dS are at once the
// packed panels of the products for dV and dK; dS is transposed for dQ. Gradients gather channels
// first, in f32, over blocks in ascending order.
namespace slackline::attention {

namespace {

namespace hn = simd::hn;
using gemm::kLanes;
using simd::Floats;
using simd::kFloats;

constexpr std::size_t kPanels = 2;  // of keys and of queries in a block
constexpr std::size_t kBlock = kPanels * kColumns;

// A thread's scratch. Strips and panels are named after what they run over (attention_head.h).
struct Scratch {
  Scratch(float* base, const HeadSize& size) : pieces(base) {
    const std::size_t time_strips = size.T_strips * size.D;
    const std::size_t time_panels = size.T_panels * size.D;
    const std::size_t channel_strips = size.T_strips * size.D_strips;
    const std::size_t gradient = size.T_panels * size.D_lanes;
    query_strips = pieces.take(time_strips);
    d_output_strips = pieces.take(time_strips);
    key_panels = pieces.take(time_panels);
    value_panels = pieces.take(time_panels);
    query_channels = pieces.take(channel_strips);
    key_channels = pieces.take(channel_strips);
    d_output_channels = pieces.take(channel_strips);
    d_query = pieces.take(gradient);
    d_key = pieces.take(gradient);
    d_value = pieces.take(gradient);
    log_sums = pieces.take(size.T_strips);
    delta = pieces.take(size.T_strips);
    weights = pieces.take(kBlock * kBlock);
    d_scores = pieces.take(kBlock * kBlock);
    d_scores_by_key = pieces.take(kBlock * kBlock);
    factors = pieces.take(kBlock);
    rows = pieces.take(kColumns * size.D_lanes);
  }

  Pieces pieces;
  float *query_strips, *d_output_strips;
  float *key_panels, *value_panels;
  float *query_channels, *key_channels, *d_output_channels;
  float *d_query, *d_key, *d_value;  // D_lanes x T_panels
  float *log_sums, *delta;
  float *weights, *d_scores;  // panel p of keys: kBlock x kColumns at p * kBlock * kColumns
  float* d_scores_by_key;     // panel p of queries, likewise
  float* factors;
  float* rows;
};

// Queries [query, query_end) against keys [key, key_end); ends are whole strips of existing rows.
struct Block {
  std::size_t query, query_end;
  std::size_t key, key_end;
};

template <typename T>
class HeadBackward {
 public:
  HeadBackward(const AttentionBackward& args, HeadIndex head, const HeadSize& size, float* scratch)
      : size_(size),
        scratch_(scratch, size),
        queries_(part_of<T>(args.qkv, size.D, Part::query, head)),
        keys_(part_of<T>(args.qkv, size.D, Part::key, head)),
        values_(part_of<T>(args.qkv, size.D, Part::value, head)),
        output_(head_of<T>(args.output, size.D, head)),
        d_output_(head_of<T>(args.d_output, size.D, head)),
        d_queries_(part_of<T>(args.d_qkv, size.D, Part::query, head)),
        d_keys_(part_of<T>(args.d_qkv, size.D, Part::key, head)),
        d_values_(part_of<T>(args.d_qkv, size.D, Part::value, head)),
        log_sum_exp_(args.log_sum_exp.data<float>() +
                     (head.b * static_cast<std::size_t>(args.num_heads) + head.h) * size.T),
        drops_(args.dropout.probability > 0.0F),
        factors_(args.dropout, args.dropout.first_sample + head.b),
        first_row_((static_cast<std::uint64_t>(args.first_head) + head.h) * size.T) {}

  void run() {
    pack_operands();
    gather_rows();
    const std::size_t gradient = size_.T_panels * size_.D_lanes;
    for (float* to : {scratch_.d_query, scratch_.d_key, scratch_.d_value}) {
      std::fill(to, to + gradient, 0.0F);
    }
    for (std::size_t key = 0; key < size_.T; key += kBlock) {
      for (std::size_t query = key; query < size_.T; query += kBlock) {
        run_block({.query = query,
                   .query_end = std::min(size_.T_strips, query + kBlock),
                   .key = key,
                   .key_end = std::min(size_.T_strips, key + kBlock)});
      }
    }
    simd::scale_elements(scratch_.d_query, gradient, score_scale(size_.D));
    write_gradient(scratch_.d_query, d_queries_);
    write_gradient(scratch_.d_key, d_keys_);
    write_gradient(scratch_.d_value, d_values_);
  }

 private:
  // Queries are scaled where they are packed: for the scores, and so for dK.
  void pack_operands() {
    const std::size_t time = size_.T;
    const std::size_t D = size_.D;
    pack_time_strips(queries_, time, D, scratch_.query_strips);
    pack_time_strips(d_output_, time, D, scratch_.d_output_strips);
    pack_time_panels(keys_, time, D, scratch_.key_panels);
    pack_time_panels(values_, time, D, scratch_.value_panels);
    pack_channel_strips(queries_, time, D, scratch_.query_channels);
    pack_channel_strips(keys_, time, D, scratch_.key_channels);
    pack_channel_strips(d_output_, time, D, scratch_.d_output_channels);
    simd::scale_elements(scratch_.query_strips, size_.T_strips * D, score_scale(D));
    simd::scale_elements(scratch_.query_channels, size_.T_strips * size_.D_strips, score_scale(D));
  }

  // L and delta of each query; zero for the padding, whose products are then zero too.
  void gather_rows() {
    for (std::size_t q = 0; q < size_.T_strips; ++q) {
      scratch_.log_sums[q] = q < size_.T ? log_sum_exp_[q] : 0.0F;
      Floats sum = simd::zero();
      simd::for_each_vector(q < size_.T ? size_.D : 0, [&](std::size_t d, auto part) {
        sum = hn::MulAdd(
            simd::load(output_.row(q) + d, part), simd::load(d_output_.row(q) + d, part), sum);
      });
      scratch_.delta[q] = simd::sum_lanes(sum);
    }
  }

  void run_block(const Block& block) {
    for (std::size_t key = block.key; key < block.key_end; key += kColumns) {
      multiply_scores(block, key);
    }
    for (std::size_t q = block.query; q < block.query_end; ++q) {
      differentiate_row(block, q);
    }
    for (std::size_t key = block.key; key < block.key_end; key += kColumns) {
      add_to_keys_and_values(block, key);
    }
    for (std::size_t query = block.query; query < block.query_end; query += kColumns) {
      add_to_queries(block, query);
    }
  }

  // Scores and dO V^T of a panel of keys, for the strips of queries that see any of it.
  void multiply_scores(const Block& block, std::size_t key) {
    const std::size_t vectors = gemm::vectors_for(block.key_end - key);
    for (std::size_t q = first_row(block, key); q < block.query_end; q += kRows) {
      const std::size_t at = place(block, key, q);
      gemm::multiply_tile({.strip = scratch_.query_strips + q * size_.D,
                           .panel = scratch_.key_panels + key * size_.D,
                           .K = size_.D,
                           .c = scratch_.weights + at,
                           .c_stride = kColumns,
                           .vectors = vectors});
      gemm::multiply_tile({.strip = scratch_.d_output_strips + q * size_.D,
                           .panel = scratch_.value_panels + key * size_.D,
                           .K = size_.D,
                           .c = scratch_.d_scores + at,
                           .c_stride = kColumns,
                           .vectors = vectors});
    }
  }

  // Turns query q's scores into P F, and dO V^T into dS.
  void differentiate_row(const Block& block, std::size_t q) {
    if (drops_ && q < size_.T) {
      factors_.draw((first_row_ + q) * size_.T + block.key,
                    {scratch_.factors, rounded_up(block.key_end - block.key, kColumns)});
    }
    const Floats log_sum = simd::splat(scratch_.log_sums[q]);
    const Floats delta = simd::splat(scratch_.delta[q]);
    for (std::size_t key = block.key; key < block.key_end && key <= q; key += kColumns) {
      const std::size_t at = place(block, key, q);
      for (std::size_t j = 0; j < gemm::vectors_for(block.key_end - key); ++j) {
        float* weight = scratch_.weights + at + j * kLanes;
        float* d_score = scratch_.d_scores + at + j * kLanes;
        const Floats scores = hn::Load(kFloats, weight);
        const Floats lane = hn::Iota(kFloats, static_cast<float>(j * kLanes));
        const auto is_seen = hn::Le(lane, simd::splat(static_cast<float>(q - key)));
        const Floats P = hn::IfThenElseZero(is_seen, hn::Exp(kFloats, hn::Sub(scores, log_sum)));
        const Floats F = drops_ && q < size_.T
                             ? simd::load(scratch_.factors + (key - block.key) + j * kLanes)
                             : simd::splat(1.0F);
        const Floats dP = hn::Mul(hn::Load(kFloats, d_score), F);
        hn::Store(hn::Mul(P, F), kFloats, weight);
        hn::Store(hn::Mul(P, hn::Sub(dP, delta)), kFloats, d_score);
      }
    }
  }

  void add_to_keys_and_values(const Block& block, std::size_t key) {
    const std::size_t q = first_row(block, key);
    const std::size_t at = place(block, key, q);
    for (std::size_t d = 0; d < size_.D; d += kRows) {
      const std::size_t strip = d * size_.T_strips + q * kRows;
      gemm::Tile tile{.strip = scratch_.d_output_channels + strip,
                      .panel = scratch_.weights + at,
                      .K = block.query_end - q,
                      .c = scratch_.d_value + d * size_.T_panels + key,
                      .c_stride = size_.T_panels,
                      .init = gemm::Init::add,
                      .vectors = gemm::vectors_for(block.key_end - key)};
      gemm::multiply_tile(tile);
      tile.strip = scratch_.query_channels + strip;
      tile.panel = scratch_.d_scores + at;
      tile.c = scratch_.d_key + d * size_.T_panels + key;
      gemm::multiply_tile(tile);
    }
  }

  void add_to_queries(const Block& block, std::size_t query) {
    const std::size_t vectors = gemm::vectors_for(block.query_end - query);
    // Keys after the panel's last query do not count.
    const std::size_t key_end = std::min(block.key_end, query + kColumns);
    for (std::size_t key = block.key; key < key_end; key += kColumns) {
      gemm::transpose({.from = scratch_.d_scores + place(block, key, query),
                       .from_stride = kColumns,
                       .to = scratch_.d_scores_by_key + (key - block.key) * kColumns,
                       .to_stride = kColumns},
                      gemm::vectors_for(key_end - key) * kLanes,
                      vectors * kLanes);
    }
    for (std::size_t d = 0; d < size_.D; d += kRows) {
      gemm::multiply_tile({.strip = scratch_.key_channels + d * size_.T_strips + block.key * kRows,
                           .panel = scratch_.d_scores_by_key,
                           .K = key_end - block.key,
                           .c = scratch_.d_query + d * size_.T_panels + query,
                           .c_stride = size_.T_panels,
                           .init = gemm::Init::add,
                           .vectors = vectors});
    }
  }

  // The first query of the block that sees a key of the panel; a whole number of strips.
  [[nodiscard]] static std::size_t first_row(const Block& block, std::size_t key) {
    static_assert(kColumns % kRows == 0);
    return std::max(block.query, key);
  }

  // Returns where query q and the panel at `key` stand in weights and d_scores.
  [[nodiscard]] static std::size_t place(const Block& block, std::size_t key, std::size_t q) {
    return (key - block.key) * kBlock + (q - block.query) * kColumns;
  }

  void write_gradient(const float* gradient, const Rows<T>& to) {
    for (std::size_t t = 0; t < size_.T; t += kColumns) {
      write_rows<T>({gradient + t, size_.T_panels, scratch_.rows},
                    size_,
                    std::min(kColumns, size_.T - t),
                    {to.row(t), to.stride});
    }
  }

  const HeadSize& size_;
  Scratch scratch_;
  Rows<T> queries_, keys_, values_, output_, d_output_, d_queries_, d_keys_, d_values_;
  const float* log_sum_exp_;
  bool drops_;
  simd::DropoutFactors factors_;
  std::uint64_t first_row_;
};

}  // namespace

std::size_t backward_scratch_elements(const HeadSize& size) {
  return Scratch(nullptr, size).pieces.used();
}

}  // namespace slackline::attention

namespace slackline::cpu {

template <typename T>
void attention_backward(StreamView stream, const AttentionBackward& args) {
  using attention::HeadSize;
  const auto B = static_cast<std::size_t>(args.qkv.dim(0));
  const auto H = static_cast<std::size_t>(args.num_heads);
  const HeadSize size(static_cast<std::size_t>(args.qkv.dim(1)),
                      static_cast<std::size_t>(args.qkv.dim(2)) / (3 * H));
  const std::size_t elements = attention::backward_scratch_elements(size);
  ArenaScope scope(stream.workspace());
  float* scratch =
      scope
          .allocate(DType::f32,
                    Shape{stream.pool().num_threads(), static_cast<std::int64_t>(elements)})
          .template data<float>();
  stream.pool().parallel_for(B * H, [&](std::size_t task, int thread) {
    const attention::HeadIndex head{.b = task / H, .h = task % H};
    attention::HeadBackward<T>(
        args, head, size, scratch + static_cast<std::size_t>(thread) * elements)
        .run();
  });
}

template void attention_backward<float>(StreamView, const AttentionBackward&);
template void attention_backward<BFloat16>(StreamView, const AttentionBackward&);

}  // namespace slackline::cpu
