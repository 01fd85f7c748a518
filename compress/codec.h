#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compress/codec_setting.h"
#include "core/check.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  [[nodiscard]] std::size_t num_elements() const {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  }

  friend bool operator==(const MatrixShape&, const MatrixShape&) = default;
};

// One matrix of a message. The name keeps its random numbers apart from those of others: a logical
// tensor's, or a boundary's.
struct CodecPart {
  std::string name;
  MatrixShape shape{};
  // Second moments of its elements, f32: the same at all ends of a message, from before it is
  // encoded until it is decoded. Read by codecs whose setting needs_moments().
  Tensor moments{};
};

// What names a message, for codecs that draw numbers: the same key gives the same numbers on any
// rank, in any order.
struct MessageKey {
  std::uint64_t seed = 0;         // of the run
  std::uint64_t step = 0;         // from 1
  std::uint64_t micro_batch = 0;  // 0 where a site sends one message a step
  // Stochastic rounding draws by these in place of the micro-batch, so that the errors of messages
  // that are added up later are independent.
  std::uint64_t sender = 0;         // gradients: micro-batch x ranks of the group that adds them
                                    // up + rank in it, the micro-batch 0 at a step's end;
                                    // boundaries: micro-batch x data ranks + data rank
  std::uint64_t first_element = 0;  // of this share in what all tensor ranks send together
};

// How the gradient of an activation passes a codec that the activation passed.
enum class CodecGradient {
  straight_through,  // unchanged
  masked,            // zero where the codec left the activation out, else scaled as it was
};

// What of a codec's state belongs to one matrix, for checkpoints: f32, in place.
struct CodecState {
  std::string part;  // the name of its matrix
  std::string name;  // "right_factor"
  Tensor data{};
};

// Compresses one kind of message: a list of matrices (f32, row-major), always of the same shapes.
// Owns the state that goes from message to message; the residual of error feedback belongs to its
// caller (residuals.h), who hands it in.
//
// A message takes one of two ways.
//   As a frame, to one receiver or gathered by several:  encode(), send the frame, settle();
//     the receiver: decode().
//   As sums, where sums() > 0 and the message is added up over ranks:  begin_sum(), add addend(1)
//     up over all ranks, next_sum() and add up the next addend for each further round,
//     finish_sum(). The result is the decoded sum of all ranks' matrices, equal on all of them.
//
// With a residual e (one tensor a matrix; empty vectors: no error feedback) a message stands for
// values + e. encode() and begin_sum() leave that sum in e, settle() and finish_sum() take off what
// the receivers get, so that e is then what they did not. Between the two a frame may already be
// under way: nothing but e is written.
//
// Where the stream is of the CUDA device, frames are checked when it is synchronized: a damaged one
// may have been written to `out` by then.
//
// Deterministic: results depend on values, state and key, never on the number of threads. Inf and
// NaN in the values give Inf or NaN at the receiver. One thread at a time.
class Codec {
 public:
  // The matrices of a message; all contiguous.
  using Matrices = std::vector<Tensor>;

  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  // Bytes of a frame: frame_bytes() of setting and shapes (codec_bytes.h).
  [[nodiscard]] std::size_t frame_bytes() const { return frame_bytes_; }

  // `frame` is (frame_bytes) of u8. `values` are only read.
  virtual void encode(StreamView stream,
                      const Matrices& values,
                      const Matrices& residual,
                      const MessageKey& key,
                      const Tensor& frame) = 0;

  // Takes what decode() makes of `frame`, the one encoded last, off the residual.
  virtual void settle(StreamView stream, const Tensor& frame, const Matrices& residual) = 0;

  // Writes, or with `accumulate` adds, the matrices of a frame. Throws CommError where the frame
  // is not one of this setting and these shapes, before anything is written.
  virtual void decode(StreamView stream,
                      const Tensor& frame,
                      const Matrices& out,
                      bool accumulate) const = 0;

  // Rounds of addition over ranks; 0: this codec's messages do not add, and the calls below fail.
  [[nodiscard]] virtual int sums() const { return 0; }

  // What is added up in place in a round, from 1: the same memory for every message. Not called
  // beside other calls.
  [[nodiscard]] virtual Tensor addend(int /*round*/) { refuse_sums(); }

  // Makes the first addend.
  virtual void begin_sum(StreamView /*stream*/,
                         const Matrices& /*values*/,
                         const Matrices& /*residual*/,
                         const MessageKey& /*key*/) {
    refuse_sums();
  }

  // Makes the next addend, of the sum of the one before. `values` and `residual` as given to
  // begin_sum.
  virtual void next_sum(StreamView /*stream*/,
                        const Matrices& /*values*/,
                        const Matrices& /*residual*/) {
    refuse_sums();
  }

  // After the last round, added up over `ranks`. `out` may be the values.
  virtual void finish_sum(StreamView /*stream*/,
                          const Matrices& /*out*/,
                          const Matrices& /*residual*/,
                          int /*ranks*/) {
    refuse_sums();
  }

  [[nodiscard]] virtual CodecGradient gradient() const { return CodecGradient::straight_through; }

  // Takes the gradient of what decode() makes of matrix 0 of `frame` back to that of what was
  // encoded: zeroes the elements that the frame left out and multiplies the others by what decode()
  // multiplies them by. REQUIRES: gradient() is masked.
  virtual void mask(StreamView /*stream*/,
                    const Tensor& /*frame*/,
                    const Tensor& /*gradient*/) const {
    SL_CHECK(false, "this codec does not mask gradients");
  }

  // Views of what later messages depend on; valid as long as the codec.
  [[nodiscard]] virtual std::vector<CodecState> state() { return {}; }

  // Scratch of the calls above, on the stream's workspace.
  [[nodiscard]] virtual std::size_t workspace_bytes(const Workers& workers) const = 0;

 protected:
  explicit Codec(std::size_t frame_bytes) : frame_bytes_(frame_bytes) {}

 private:
  [[noreturn]] static void refuse_sums() { SL_CHECK(false, "this codec's messages do not add"); }

  std::size_t frame_bytes_;
};

// `seed` is the run's: parts of the same name start alike on all ranks. Messages and state lie in
// the memory of `device`. REQUIRES: every part has elements.
[[nodiscard]] std::unique_ptr<Codec> make_codec(const CodecSetting& setting,
                                                std::vector<CodecPart> parts,
                                                std::uint64_t seed,
                                                Device device = Device::cpu);

}  // namespace slackline
