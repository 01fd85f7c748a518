#include "core/cuda/matmul_products.h"
#include "tests/emulated_cuda/cuda_runtime.h"

// In cuBLASLt's place where kernels run on the processor.
namespace slackline::cuda {

bool fused_product(StreamView /*stream*/, const MatmulArgs& /*args*/) {
  return false;
}

void plain_product(StreamView stream, const MatmulArgs& args) {
  const MatmulArgs plain{
      .a = args.a,
      .b = args.b,
      .c = args.c,
      .transpose_a = args.transpose_a,
      .transpose_b = args.transpose_b,
      .accumulate = args.accumulate,
  };
  emulated_cuda::enqueue(stream.cuda().handle(), [plain] {
    Stream processor({.name = "products", .workspace_bytes = matmul_workspace_bytes(plain, 1)});
    matmul(processor, plain);
  });
}

}  // namespace slackline::cuda
