#pragma once

#include <cstddef>
#include <string>

#include "compress/kernels/low_rank/orthogonalization.h"
#include "compress/kernels/quantize/scale_of.h"
#include "core/tensor/dtype.h"

namespace slackline {

enum class CodecKind { low_rank, top_k, random_k, quantize, cast };
inline constexpr std::size_t kNumCodecs = 5;

// What becomes of what a message leaves out.
//   none       it is lost
//   immediate  it is added to the next message of the same tensor: of the same micro-batch in the
//              next step where a site sends several a step
//   lazy       it is added to the next message of the site, whatever its micro-batch (Optimus-CC's
//              lazy error propagation)
// A site with one message a step makes no difference between the last two.
enum class ErrorFeedback { none, immediate, lazy };

enum class Rounding { nearest, stochastic };

// The unit in which an element of a message counts.
//   values   1
//   moments  of a gradient: the root of its second moment, by which AdamW divides it
enum class Units { values, moments };

// Says by which way messages that do not add, brought by all ranks of a group, become a sum that
// each of them has.
//   gather    each gets all messages, and adds them up
//   two_shot  each gets its rows of all messages, adds them up and sends their sum, coded anew, to
//             all: 2 (g - 1) / g messages of g ranks in place of g - 1
enum class SumWay { gather, two_shot };

// How one site's transfers are compressed. Fields of other kinds than `kind` mean nothing.
struct CodecSetting {
  CodecKind kind = CodecKind::low_rank;
  ErrorFeedback error_feedback = ErrorFeedback::none;
  bool always = false;  // also matrices that do not shrink; else those travel plain

  int rank = 0;                // low_rank: of the factors, at most what the matrix has
  DType factors = DType::f32;  // low_rank: as they travel; f32 or bf16
  Orthogonalization orthogonalization = Orthogonalization::blocked;  // low_rank: of left factors

  double ratio = 0.0;         // top_k, random_k: share of elements kept, in (0, 1]
  DType values = DType::f32;  // top_k, random_k: as they travel; f32 or bf16

  int bits = 0;  // quantize: 2, 3, 4 or 8
  ScaleOf scale = ScaleOf::channel;
  int group = 128;  // with ScaleOf::group
  Units units = Units::values;
  Rounding rounding = Rounding::nearest;

  SumWay sum = SumWay::gather;  // sums of gradients, of messages that do not add: quantize

  friend bool operator==(const CodecSetting&, const CodecSetting&) = default;
};

// The names of the config's "codec".
[[nodiscard]] const char* name_of(CodecKind kind);

// A word for people: "low_rank 16", "top_k 0.01", "quantize 4", "quantize 4 two_shot".
[[nodiscard]] std::string short_text(const CodecSetting& setting);

// The same codec, by whichever way its messages become a sum: what one call of it does and takes.
[[nodiscard]] CodecSetting setting_of_calls(const CodecSetting& setting);

}  // namespace slackline
