#include "compress/kernels/quantize/code_widths.h"
#include "compress/kernels/quantize/quantize.h"
#include "compress/kernels/quantize/quantize_simd.h"
#include "compress/kernels/quantize/quantize_strips.h"

// One reading of the codes and one pass over the output. A level has eight bits and a scale as
// many, or twice as many where it is a product: their product is exact, and an update is rounded
// once.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

// The levels of codes: code * step - below_zero.
struct Levels {
  float step;
  float below_zero;
};

// scales_of(i, part) gives the scales of out[i] and its neighbours. Codes may be read beyond the
// last one.
template <Update update, typename ScalesOf>
void update_elements(const std::uint8_t* codes,
                     const Levels& levels,
                     std::span<float> out,
                     const ScalesOf& scales_of) {
  const hn::Rebind<std::uint8_t, simd::FloatTag> bytes;
  simd::for_each_vector(out.size(), [&](std::size_t i, auto part) {
    const auto wide = hn::PromoteTo(simd::kInts, hn::LoadU(bytes, codes + i));
    const Floats code = hn::ConvertTo(simd::kFloats, wide);
    const Floats level = hn::MulSub(code, simd::splat(levels.step), simd::splat(levels.below_zero));
    simd::store_product<update>(level, scales_of(i, part), out.data() + i, part);
  });
}

class Unpacker {
 public:
  Unpacker(const QuantizedMatrix& from, std::size_t columns)
      : bits_(static_cast<unsigned>(from.format.bits)),
        shared_(from.format.shared),
        columns_(columns),
        group_(group_size(from.format, columns)),
        groups_per_row_((columns + group_ - 1) / group_),
        levels_(levels_of(from.format)),
        rows_(static_cast<std::size_t>(from.packed.dim(0))),
        row_bytes_(static_cast<std::size_t>(from.packed.dim(1))),
        scales_(from.scales.data<BFloat16>()),
        packed_(from.packed.data<std::uint8_t>()) {}

  // Writes, adds or subtracts a strip; `out` points to its first element.
  template <Update update>
  void unpack(const Strip& strip, float* out) const {
    for_each_chunk(strip.count, [&](std::size_t first, std::size_t count) {
      alignas(64) std::uint8_t codes[kChunk + simd::kCodes];
      const std::size_t column = strip.column + first;
      const std::uint8_t* from = packed_ + strip.row * row_bytes_ + column * bits_ / 8;
      with_code_width(static_cast<int>(bits_),
                      [&](auto bits) { simd::unpack_all<bits>(from, count, codes); });
      update_chunk<update>({strip.row, column, count}, codes, out + first);
    });
  }

 private:
  static Levels levels_of(const QuantizedFormat& format) {
    const float step = 1.0F / static_cast<float>(1U << static_cast<unsigned>(format.bits - 1));
    return {.step = step, .below_zero = 1.0F - format.offset() * step};
  }

  template <Update update>
  void update_chunk(const Strip& chunk, const std::uint8_t* codes, float* out) const {
    const std::span<float> to(out, chunk.count);
    if (shared_ == ScaleOf::channel) {
      update_elements<update>(codes, levels_, to, [&](std::size_t i, auto part) {
        return simd::load(scales_ + chunk.column + i, part);
      });
      return;
    }
    if (shared_ == ScaleOf::both) {
      const Floats row = simd::splat(static_cast<float>(scales_[chunk.row]));
      const BFloat16* columns = scales_ + rows_ + chunk.column;
      update_elements<update>(codes, levels_, to, [&](std::size_t i, auto part) {
        return hn::Mul(row, simd::load(columns + i, part));
      });
      return;
    }
    const BFloat16* scales =
        shared_ == ScaleOf::tensor ? scales_ : scales_ + chunk.row * groups_per_row_;
    const auto scale_of = [=](std::size_t group) { return static_cast<float>(scales[group]); };
    if (group_ == columns_ || group_ % simd::kLanes == 0) {
      for_each_group(group_, chunk.column, chunk.count, [&](std::size_t group, const Run& run) {
        const Floats scale = simd::splat(scale_of(group));
        update_elements<update>(codes + run.first,
                                levels_,
                                to.subspan(run.first, run.count),
                                [&](std::size_t /*i*/, auto /*part*/) { return scale; });
      });
      return;
    }
    ChunkFactors all;
    spread_factors(group_, chunk.column, chunk.count, scale_of, all);
    update_elements<update>(
        codes, levels_, to, [&](std::size_t i, auto /*part*/) { return simd::load(all + i); });
  }

  unsigned bits_;
  ScaleOf shared_;
  std::size_t columns_;
  std::size_t group_;
  std::size_t groups_per_row_;
  Levels levels_;
  std::size_t rows_;
  std::size_t row_bytes_;
  const BFloat16* scales_;
  const std::uint8_t* packed_;
};

}  // namespace

void dequantize(StreamView stream, const QuantizedMatrix& from, const Tensor& out, Update update) {
  const auto columns = static_cast<std::size_t>(out.dim(1));
  const Unpacker unpacker(from, columns);
  float* to = out.data<float>();
  const Strips strips(static_cast<std::size_t>(out.dim(0)), columns, 1);
  with_update(update, [&](auto constant) {
    for_each_strip(stream, strips, Order::forwards, [&](const Strip& strip) {
      unpacker.unpack<decltype(constant)::value>(strip, to + strip.row * columns + strip.column);
    });
  });
}

}  // namespace slackline::cpu
