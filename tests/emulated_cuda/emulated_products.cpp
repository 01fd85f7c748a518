#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/matmul_products.h"
#include "tests/emulated_cuda/cuda_runtime.h"

// In cuBLASLt's place where kernels run on the processor.
namespace slackline::cuda {

bool fused_product(StreamView /*stream*/, const MatmulArgs& /*args*/) {
  return false;
}

// Has it for an even number of columns, so that tests see both ways.
bool product_with_column_sums(StreamView stream, const MatmulArgs& args, const Tensor& sums) {
  if (args.c.dim(1) % 2 != 0) {
    return false;
  }
  plain_product(stream, args);
  fill_zero(stream, sums);
  bias_gradient(stream, args.b, sums);
  return true;
}

void plain_product(StreamView stream, const MatmulArgs& args) {
  const MatmulArgs plain{
      .a = args.a,
      .b = args.b,
      .c = args.c,
      .transpose_a = args.transpose_a,
      .transpose_b = args.transpose_b,
      .accumulate = args.accumulate,
      .row_of_a = args.row_of_a,
      .row_of_c = args.row_of_c,
  };
  emulated_cuda::enqueue(stream.cuda().handle(), [plain] {
    Stream processor({.name = "products", .workspace_bytes = matmul_workspace_bytes(plain, 1)});
    matmul(processor, plain);
  });
}

}  // namespace slackline::cuda
