#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

enum class Transpose { no, yes };
enum class Accumulate { no, yes };

// Who has to get the same bits from the same operands: every process of a host and every later run
// there, so that the fastest of the device's algorithms may be measured; or ranks of other hosts as
// well, which measure for themselves.
enum class SameBits { on_a_host, on_all_hosts };

// C = op(A) op(B) [+ C], with optional epilogues, in this order:
//   1. + bias (N), if given;
//   2. gelu_output = gelu_tanh(C), if given: C keeps the pre-activation for the backward pass;
//   3. C *= gelu_tanh'(gelu_input), if given: the backward pass of 2.
// A product that makes a weight's gradient may add a bias's too: bias_gradient (N) += the sums of
// B's columns, as in bias_gradient.h. REQUIRES then: B is not transposed, and no epilogue.
// A is (M, K), or (K, M) with transpose_a; B is (K, N), or (N, K) with transpose_b; C is (M, N).
// The rows of A and of C may lie apart, row_of_a and row_of_c elements from one to the next; what
// is between them is neither read nor written. REQUIRES then: no epilogue for C.
// A and B have one type, f32 or bf16. C is that type or f32. bias and gelu_output have C's type or
// A's; gelu_input has A's. Leading dimensions beyond two are folded into M by the caller.
//
// Sums run in fp32. bf16 operands are multiplied by the processor's bf16 dot product where that is
// faster than fp32 (matmul_uses_bf16_units), else widened panel by panel to fp32.
// Deterministic: the tile grid depends on (M, N, K), never on the number of threads.
struct MatmulArgs {
  Tensor a{};
  Tensor b{};
  Tensor c{};
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;
  Accumulate accumulate = Accumulate::no;  // yes: C += ...; REQUIRES: C is f32, no gelu epilogue
  Tensor bias{};                           // (N) or empty
  Tensor gelu_output{};                    // (M, N) or empty
  Tensor gelu_input{};                     // (M, N) or empty
  Tensor bias_gradient{};                  // (N) f32 or empty
  SameBits same_bits = SameBits::on_a_host;
  std::int64_t row_of_a = 0;  // 0: side by side
  std::int64_t row_of_c = 0;

  [[nodiscard]] std::int64_t a_row() const { return row_of_a == 0 ? a.dim(1) : row_of_a; }

  [[nodiscard]] std::int64_t c_row() const { return row_of_c == 0 ? c.dim(1) : row_of_c; }
};

void matmul(StreamView stream, const MatmulArgs& args);

// Scratch that the call takes from the stream's workspace.
[[nodiscard]] std::size_t matmul_workspace_bytes(const MatmulArgs& args, const Workers& workers);

// True where bf16 products run on units made for them: AMX, or AVX512-BF16 on AMD. Read from the
// processor's identity and not timed, so that results are the same in every run on a machine.
[[nodiscard]] bool matmul_uses_bf16_units();

}  // namespace slackline
