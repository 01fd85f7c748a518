#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compress/codec_bytes.h"
#include "compress/codec_keys.h"
#include "compress/codec_traits.h"
#include "compress/frame.h"
#include "compress/kernels/quantize/code_widths.h"
#include "compress/kernels/quantize/moment_units.h"
#include "compress/kernels/quantize/quantize.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/update/sum_of_squares.h"

// A frame holds, after its header and for each matrix, the scales (bf16) and the packed codes of
// compress/kernels/quantize/quantize.h. Scales may lie at an odd byte there, so they pass through
// scratch. In units of moments what is quantized are quotients, in scratch as well.
namespace slackline {

namespace {

QuantizedFormat format_of(const CodecSetting& setting) {
  return {.bits = setting.bits, .shared = setting.scale, .group = setting.group};
}

// Keeps nothing from message to message but units of moments: those of the message encoded last
// are those of all messages of its sum.
class QuantizeCodec final : public Codec {
 public:
  QuantizeCodec(const CodecSetting& setting,
                std::vector<CodecPart> parts,
                std::uint64_t /*seed*/,
                Device /*device*/)
      : Codec(slackline::frame_bytes(setting, parts)),
        setting_(setting),
        format_(format_of(setting)),
        parts_(std::move(parts)) {}

  void encode(StreamView stream,
              const Matrices& values,
              const Matrices& residual,
              const MessageKey& key,
              const Tensor& frame) override {
    SL_CHECK_EQ(frame.bytes(), frame_bytes());
    SL_CHECK_EQ(values.size(), parts_.size());
    begin_frame(stream, frame, CodecKind::quantize, parameter());
    std::size_t next = sizeof(FrameHeader);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      ArenaScope scratch(stream.workspace());
      const QuantizedMatrix matrix = matrix_at(frame, next, parts_[m].shape, scratch);
      Quantize args{.x = matrix_view(values[m], parts_[m].shape), .to = matrix};
      if (!residual.empty()) {
        args.sum = matrix_view(residual[m], parts_[m].shape);
      }
      if (setting_.units == Units::moments) {
        args = in_units(stream, m, args, scratch);
      }
      if (setting_.rounding == Rounding::stochastic) {
        args.stochastic = {.stream = philox_key(key.seed, stream_name(m)),
                           .step = key.step,
                           .message = key.sender,
                           .first_element = key.first_element};
      }
      quantize(stream, args);
      cast(stream, bytes_of(matrix.scales), bytes_at(frame, next, matrix.scales.bytes()));
      next += payload_bytes(setting_, parts_[m].shape);
    }
  }

  void settle(StreamView stream, const Tensor& frame, const Matrices& residual) override {
    if (!residual.empty()) {
      decode_matrices(stream, frame, residual, Update::subtract);
    }
  }

  void decode(StreamView stream,
              const Tensor& frame,
              const Matrices& out,
              bool accumulate) const override {
    decode_matrices(stream, frame, out, accumulate ? Update::add : Update::write);
  }

  [[nodiscard]] std::size_t workspace_bytes(const Workers& workers) const override {
    std::size_t largest = 0;
    for (const CodecPart& part : parts_) {
      const MatrixShape& shape = part.shape;
      const std::size_t scales = Arena::aligned_bytes(DType::bf16, {num_scales_of(shape)});
      const std::size_t quantized =
          quantize_workspace_bytes(format_.shared, shape.rows, shape.columns, workers);
      largest = std::max(largest, scales + std::max(quantized, units_workspace(shape, workers)));
    }
    return largest;
  }

 private:
  static Tensor matrix_view(const Tensor& tensor, const MatrixShape& shape) {
    return tensor.reshaped({shape.rows, shape.columns});
  }

  static Tensor bytes_of(const Tensor& tensor) { return bytes_at(tensor, 0, tensor.bytes()); }

  [[nodiscard]] std::size_t parameter() const { return static_cast<std::size_t>(setting_.bits); }

  [[nodiscard]] std::string stream_name(std::size_t matrix) const {
    return "codec/quantize/" + parts_[matrix].name;
  }

  [[nodiscard]] std::int64_t num_scales_of(const MatrixShape& shape) const {
    return format_.num_scales(shape.rows, shape.columns);
  }

  // The matrix whose payload begins there: its codes in place, its scales in scratch.
  QuantizedMatrix matrix_at(const Tensor& frame,
                            std::size_t offset,
                            const MatrixShape& shape,
                            ArenaScope& scratch) const {
    const Tensor scales = scratch.allocate(DType::bf16, {num_scales_of(shape)});
    return {.format = format_,
            .scales = scales,
            .packed = frame_part(frame,
                                 offset + scales.bytes(),
                                 DType::u8,
                                 {shape.rows, format_.row_bytes(shape.columns)})};
  }

  // Makes quotients in units of moments, which are quantized in place of the values.
  [[nodiscard]] Quantize in_units(StreamView stream,
                                  std::size_t m,
                                  const Quantize& args,
                                  ArenaScope& scratch) {
    const MatrixShape& shape = parts_[m].shape;
    SL_CHECK(!parts_[m].moments.empty(), parts_[m].name + " has no second moments here");
    units_.resize(parts_.size());
    units_[m] = moment_units(stream, matrix_view(parts_[m].moments, shape));
    if (!args.sum.empty()) {
      accumulate(stream, args.x, args.sum);
    }
    const Tensor quotients = scratch.allocate(DType::f32, {shape.rows, shape.columns});
    divide_by_units(stream, args.sum.empty() ? args.x : args.sum, units_[m], quotients);
    return {.x = quotients, .to = args.to};
  }

  [[nodiscard]] std::size_t units_workspace(const MatrixShape& shape,
                                            const Workers& workers) const {
    if (setting_.units != Units::moments) {
      return 0;
    }
    const Tensor matrix(nullptr, DType::f32, {shape.rows, shape.columns});
    const std::size_t quotients = Arena::aligned_bytes(DType::f32, {shape.rows, shape.columns});
    return std::max(
        sums_of_squares_workspace_bytes({&matrix, 1}, workers),
        quotients + quantize_workspace_bytes(format_.shared, shape.rows, shape.columns, workers));
  }

  void decode_matrices(StreamView stream,
                       const Tensor& frame,
                       const Matrices& out,
                       Update update) const {
    SL_CHECK_EQ(out.size(), parts_.size());
    open_frame(stream, frame, CodecKind::quantize, parameter(), frame_bytes());
    std::size_t next = sizeof(FrameHeader);
    for (std::size_t m = 0; m < parts_.size(); ++m) {
      ArenaScope scratch(stream.workspace());
      const QuantizedMatrix matrix = matrix_at(frame, next, parts_[m].shape, scratch);
      cast(stream, bytes_at(frame, next, matrix.scales.bytes()), bytes_of(matrix.scales));
      const Tensor to = matrix_view(out[m], parts_[m].shape);
      if (setting_.units == Units::moments) {
        const Tensor quotients = scratch.allocate(DType::f32, to.shape());
        dequantize(stream, matrix, quotients);
        multiply_by_units(stream, quotients, units_.at(m), to, update);
      } else {
        dequantize(stream, matrix, to, update);
      }
      next += payload_bytes(setting_, parts_[m].shape);
    }
  }

  CodecSetting setting_;
  QuantizedFormat format_;
  std::vector<CodecPart> parts_;
  std::vector<MomentUnits> units_{};  // of each matrix, once a message was encoded
};

constexpr std::array<std::string_view, 5> kScales = {"channel", "token", "group", "tensor", "both"};
constexpr std::array<std::string_view, 2> kRoundings = {"nearest", "stochastic"};
constexpr std::array<std::string_view, 2> kUnits = {"values", "moments"};
constexpr std::int64_t kMaxGroup = 1 << 20;
constexpr std::size_t kScaleBytes = 2;  // bf16
constexpr CodecSetting kDefaults;

std::size_t payload(const CodecSetting& setting, const MatrixShape& shape) {
  const std::int64_t num_scales = format_of(setting).num_scales(shape.rows, shape.columns);
  return packed_bytes(setting, shape) + static_cast<std::size_t>(num_scales) * kScaleBytes;
}

// Measured on normal values with scales of 256 of them; those of rows and columns are worse at 8
// bits, for they reach no further than most values, and much better at 2.
double error(const CodecSetting& setting, const MatrixShape& /*shape*/) {
  constexpr std::array<double, kCodeWidths.size()> kOfMaxima = {0.45, 0.225, 0.11, 0.0069};
  constexpr std::array<double, kCodeWidths.size()> kOfBoth = {0.345, 0.193, 0.104, 0.0089};
  const auto width = static_cast<std::size_t>(width_index(setting.bits));
  return setting.scale == ScaleOf::both ? kOfBoth[width] : kOfMaxima[width];
}

std::optional<CodecSetting> finer(const CodecSetting& setting) {
  const auto next = static_cast<std::size_t>(width_index(setting.bits)) + 1;
  if (next == kCodeWidths.size()) {
    return std::nullopt;
  }
  CodecSetting result = setting;
  result.bits = kCodeWidths[next];
  return result;
}

int read_bits(JsonReader& section) {
  const auto bits =
      section.integer("bits", {.min = kCodeWidths.front(), .max = kCodeWidths.back()});
  if (!is_code_width(bits)) {
    section.fail("bits", "must be 2, 3, 4 or 8");
  }
  return static_cast<int>(bits);
}

void read(JsonReader& section, const CodecSetting& defaults, CodecSetting& setting) {
  setting.bits = read_bits(section);
  setting.scale = read_choice(section, "scale", kScales, defaults.scale);
  if (setting.scale == ScaleOf::group) {
    setting.group = static_cast<int>(
        section.integer("group", {.default_value = kDefaults.group, .min = 8, .max = kMaxGroup}));
  }
  setting.rounding = read_choice(section, "rounding", kRoundings, kDefaults.rounding);
  setting.units = read_choice(section, "units", kUnits, kDefaults.units);
}

std::string keys(const CodecSetting& setting) {
  return fmt::format(
      R"(, "bits": {}{}{}{}{})",
      setting.bits,
      unless_default("scale", kScales, setting.scale, kDefaults.scale),
      setting.scale == ScaleOf::group ? fmt::format(R"(, "group": {})", setting.group) : "",
      unless_default("rounding", kRoundings, setting.rounding, kDefaults.rounding),
      unless_default("units", kUnits, setting.units, kDefaults.units));
}

std::string strength(const CodecSetting& setting) {
  return std::to_string(setting.bits);
}

bool is_in_moments(const CodecSetting& setting) {
  return setting.units == Units::moments;
}

}  // namespace

extern const CodecTraits kQuantizeTraits;
constexpr CodecTraits kQuantizeTraits = {.name = "quantize",
                                         .cuts_by_rows = true,
                                         .rounds = true,
                                         .payload_bytes = payload,
                                         .expected_error = error,
                                         .finer = finer,
                                         .read = read,
                                         .keys = keys,
                                         .needs_moments = is_in_moments,
                                         .strength = strength,
                                         .make = make_codec_of<QuantizeCodec>};

}  // namespace slackline
