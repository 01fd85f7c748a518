#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include "core/kernels/matmul/matmul_backends.h"
#include "core/kernels/matmul/matmul_epilogue.h"
#include "core/threads/thread_pool.h"

// Products by oneDNN: C in tiles of at most kTileRows x tile_columns, each a single-threaded
// call over all of K on one thread of the pool. A tile's sums are f32, in C itself where that is
// f32, else in scratch, from which the epilogue narrows them.
namespace slackline {

namespace {

// oneDNN copies all of A for each tile, so wide tiles copy less; narrow ones where that leaves few
// threads without a tile. Measured on Zen 5.
constexpr std::size_t kTileRows = 512;
constexpr std::size_t kWideTile = 384;
constexpr std::size_t kNarrowTile = 192;
constexpr std::size_t kFewTiles = 8;

struct TileKey {
  DType dtype;  // of A and B
  std::size_t M, N, K;
  std::size_t a_stride, b_stride, c_stride;
  Transpose transpose_a, transpose_b;
  Accumulate accumulate;

  auto operator<=>(const TileKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::desc matrix(std::size_t rows,
                          std::size_t columns,
                          std::size_t stride,
                          Transpose transpose,
                          dnnl::memory::data_type type) {
  using dims = dnnl::memory::dims;
  const auto step = static_cast<dnnl::memory::dim>(stride);
  return {dims{static_cast<dnnl::memory::dim>(rows), static_cast<dnnl::memory::dim>(columns)},
          type,
          transpose == Transpose::yes ? dims{1, step} : dims{step, 1}};
}

struct TileProduct {
  explicit TileProduct(const TileKey& key) {
    const auto type =
        key.dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate == Accumulate::yes) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc description(
        matrix(key.M, key.K, key.a_stride, key.transpose_a, type),
        matrix(key.K, key.N, key.b_stride, key.transpose_b, type),
        matrix(key.M, key.N, key.c_stride, Transpose::no, dnnl::memory::data_type::f32));
    details = dnnl::matmul::primitive_desc(description, attributes, cpu_engine());
    primitive = dnnl::matmul(details);
  }

  [[nodiscard]] std::size_t scratch_bytes() const { return details.scratchpad_desc().get_size(); }

  dnnl::matmul::primitive_desc details;
  dnnl::matmul primitive;
};

// Made once a process: generating a product's code takes milliseconds. Products hold no data and
// may run on many threads at once; map nodes never move.
const TileProduct& tile_product(const TileKey& key) {
  make_libraries_single_threaded();  // by whose threads it would cut products and size scratch
  static std::mutex mutex;
  static std::map<TileKey, TileProduct> products;
  const std::lock_guard lock(mutex);
  return products.try_emplace(key, key).first->second;
}

struct Grid {
  explicit Grid(const MatmulArgs& args)
      : shape(shape_of(args)), writes_c(args.c.dtype() == DType::f32) {
    tile_columns = tiles() < kFewTiles ? kNarrowTile : kWideTile;
  }

  [[nodiscard]] std::size_t row_tiles() const { return (shape.M + kTileRows - 1) / kTileRows; }

  [[nodiscard]] std::size_t tiles() const {
    return row_tiles() * ((shape.N + tile_columns - 1) / tile_columns);
  }

  [[nodiscard]] std::size_t row(std::size_t tile) const { return tile % row_tiles() * kTileRows; }

  [[nodiscard]] std::size_t column(std::size_t tile) const {
    return tile / row_tiles() * tile_columns;
  }

  [[nodiscard]] TileKey key(const MatmulArgs& args, std::size_t tile) const {
    const std::size_t columns = std::min(tile_columns, shape.N - column(tile));
    return {.dtype = args.a.dtype(),
            .M = std::min(kTileRows, shape.M - row(tile)),
            .N = columns,
            .K = shape.K,
            .a_stride = static_cast<std::size_t>(args.a_row()),
            .b_stride = static_cast<std::size_t>(args.b.dim(1)),
            .c_stride = writes_c ? static_cast<std::size_t>(args.c_row()) : columns,
            .transpose_a = args.transpose_a,
            .transpose_b = args.transpose_b,
            .accumulate = args.accumulate};
  }

  // The most scratch that oneDNN wants for any tile: the first, or one of those at the edges.
  [[nodiscard]] std::size_t scratch_bytes(const MatmulArgs& args) const {
    std::size_t most = 0;
    for (const std::size_t tile :
         {std::size_t{0}, row_tiles() - 1, tiles() - row_tiles(), tiles() - 1}) {
      most = std::max(most, tile_product(key(args, tile)).scratch_bytes());
    }
    return (most + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  }

  [[nodiscard]] std::size_t sums_bytes() const {
    return writes_c ? 0 : std::min(kTileRows, shape.M) * tile_columns * sizeof(float);
  }

  MatmulShape shape;
  bool writes_c;  // sums go to C itself
  std::size_t tile_columns = kWideTile;
};

void multiply(const TileKey& key, const void* a, const void* b, float* c, std::byte* scratch) {
  const TileProduct& product = tile_product(key);
  const dnnl::engine& engine = cpu_engine();
  const auto memory = [&](const dnnl::memory::desc& description, const void* data) {
    // oneDNN takes what it only reads as non-const too.
    return dnnl::memory(description, engine, const_cast<void*>(data));
  };
  const std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, memory(product.details.src_desc(), a)},
      {DNNL_ARG_WEIGHTS, memory(product.details.weights_desc(), b)},
      {DNNL_ARG_DST, memory(product.details.dst_desc(), c)},
      {DNNL_ARG_SCRATCHPAD, memory(product.details.scratchpad_desc(), scratch)}};
  dnnl::stream stream(engine);
  product.primitive.execute(stream, arguments);
}

bool is_amd() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

}  // namespace

// Intel's AVX512-BF16 without AMX multiplies bf16 at half the rate of fp32; AMD's at twice it.
bool matmul_uses_bf16_units() {
  static const bool uses = [] {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_amx ||
           (isa == dnnl::cpu_isa::avx512_core_bf16 && is_amd());
  }();
  return uses;
}

namespace cpu {

bool onednn_multiplies_bf16() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core || isa == dnnl::cpu_isa::avx512_core_vnni ||
         isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

void matmul_by_onednn(StreamView stream, const MatmulArgs& args) {
  const Grid grid(args);
  const MatmulEpilogue epilogue(args);
  const std::size_t scratch_bytes = grid.scratch_bytes(args);
  const std::size_t thread_bytes = grid.sums_bytes() + scratch_bytes;
  const auto threads = static_cast<std::size_t>(stream.pool().num_threads());
  ArenaScope scope(stream.workspace());
  auto* scratch =
      scope.allocate(DType::u8, Shape{static_cast<std::int64_t>(thread_bytes * threads)})
          .data<std::uint8_t>();

  stream.pool().parallel_for(grid.tiles(), [&](std::size_t tile, int thread) {
    const TileKey key = grid.key(args, tile);
    const std::size_t row = grid.row(tile);
    const std::size_t column = grid.column(tile);
    const bool a_across = args.transpose_a == Transpose::yes;
    const bool b_across = args.transpose_b == Transpose::yes;
    const std::size_t element = size_of(key.dtype);
    const auto* a = static_cast<const std::byte*>(args.a.raw()) +
                    element * (a_across ? row : row * key.a_stride);
    const auto* b = static_cast<const std::byte*>(args.b.raw()) +
                    element * (b_across ? column * key.b_stride : column);
    std::uint8_t* own = scratch + static_cast<std::size_t>(thread) * thread_bytes;
    float* sums = grid.writes_c ? args.c.data<float>() + row * key.c_stride + column
                                : reinterpret_cast<float*>(own);
    multiply(key, a, b, sums, reinterpret_cast<std::byte*>(own + grid.sums_bytes()));
    if (epilogue.is_needed()) {
      epilogue.apply({.row = row,
                      .column = column,
                      .rows = key.M,
                      .columns = key.N,
                      .sums = sums,
                      .stride = key.c_stride});
    }
  });
}

std::size_t matmul_by_onednn_workspace_bytes(const MatmulArgs& args, int num_threads) {
  const Grid grid(args);
  const std::size_t thread_bytes = grid.sums_bytes() + grid.scratch_bytes(args);
  const auto threads = static_cast<std::size_t>(num_threads);
  return Arena::aligned_bytes(DType::u8, Shape{static_cast<std::int64_t>(thread_bytes * threads)});
}

}  // namespace cpu

}  // namespace slackline
