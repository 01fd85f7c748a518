#include "core/kernels/quantize.h"
#include "core/kernels/quantize_simd.h"
#include "core/kernels/quantize_strips.h"

// One reading of the codes and one pass over the output. Factors are scale / 2^f: a product with
// one is exact, so that an update is rounded once.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

template <Update update>
void update_chunk(const std::uint8_t* codes,
                  const float* factors,
                  float levels,
                  std::span<float> out) {
  const hn::Rebind<std::uint8_t, simd::FloatTag> bytes;
  simd::for_each_vector(out.size(), [&](std::size_t i, auto part) {
    const auto wide = hn::PromoteTo(simd::kInts, hn::LoadU(bytes, codes + i));
    const Floats level = hn::Sub(hn::ConvertTo(simd::kFloats, wide), simd::splat(levels));
    const Floats factor = simd::load(factors + i);
    float* to = out.data() + i;
    if constexpr (update == Update::write) {
      simd::store(hn::Mul(level, factor), to, part);
    } else if constexpr (update == Update::add) {
      simd::store(hn::MulAdd(level, factor, simd::load(to, part)), to, part);
    } else {
      simd::store(hn::NegMulAdd(level, factor, simd::load(to, part)), to, part);
    }
  });
}

class Unpacker {
 public:
  Unpacker(const QuantizedMatrix& from, std::size_t columns)
      : bits_(static_cast<std::size_t>(from.format.bits)),
        shared_(from.format.shared),
        group_(group_size(from.format, columns)),
        groups_per_row_((columns + group_ - 1) / group_),
        levels_(static_cast<float>(1U << (bits_ - 1U))),
        row_bytes_(static_cast<std::size_t>(from.packed.dim(1))),
        scales_(from.scales.data<BFloat16>()),
        packed_(from.packed.data<std::uint8_t>()) {}

  // Writes, adds or subtracts a strip; `out` points to its first element.
  template <Update update>
  void unpack(const Strip& strip, float* out) const {
    for_each_chunk(strip.count, [&](std::size_t first, std::size_t count) {
      alignas(64) std::uint8_t codes[kChunk];
      ChunkFactors factors;
      const std::size_t column = strip.column + first;
      const std::uint8_t* from = packed_ + strip.row * row_bytes_ + column * bits_ / 8;
      bits_ == 8   ? simd::unpack_all<8>(from, count, codes)
      : bits_ == 4 ? simd::unpack_all<4>(from, count, codes)
                   : simd::unpack_all<2>(from, count, codes);
      make_factors(strip.row, column, count, factors);
      update_chunk<update>(codes, factors, levels_, {out + first, count});
    });
  }

 private:
  void make_factors(std::size_t row,
                    std::size_t column,
                    std::size_t count,
                    ChunkFactors& factors) const {
    const float step = 1.0F / levels_;
    if (shared_ == SharedScale::column) {
      simd::for_each_vector(count, [&](std::size_t i, auto part) {
        const Floats scale = simd::load(scales_ + column + i, part);
        simd::store(hn::Mul(scale, simd::splat(step)), factors + i);
      });
      return;
    }
    const BFloat16* scales =
        shared_ == SharedScale::matrix ? scales_ : scales_ + row * groups_per_row_;
    spread_factors(
        group_,
        column,
        count,
        [&](std::size_t g) { return static_cast<float>(scales[g]) * step; },
        factors);
  }

  std::size_t bits_;
  SharedScale shared_;
  std::size_t group_;
  std::size_t groups_per_row_;
  float levels_;
  std::size_t row_bytes_;
  const BFloat16* scales_;
  const std::uint8_t* packed_;
};

template <Update update>
void dequantize_all(StreamView stream, const QuantizedMatrix& from, const Tensor& out) {
  const auto columns = static_cast<std::size_t>(out.dim(1));
  const Unpacker unpacker(from, columns);
  float* to = out.data<float>();
  const Strips strips(static_cast<std::size_t>(out.dim(0)), columns, 1);
  for_each_strip(stream, strips, Order::forwards, [&](const Strip& strip) {
    unpacker.unpack<update>(strip, to + strip.row * columns + strip.column);
  });
}

}  // namespace

void dequantize(StreamView stream, const QuantizedMatrix& from, const Tensor& out, Update update) {
  switch (update) {
    case Update::write:
      return dequantize_all<Update::write>(stream, from, out);
    case Update::add:
      return dequantize_all<Update::add>(stream, from, out);
    case Update::subtract:
      return dequantize_all<Update::subtract>(stream, from, out);
  }
}

}  // namespace slackline::cpu
