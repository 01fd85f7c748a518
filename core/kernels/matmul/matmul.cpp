#include "core/kernels/matmul/matmul.h"

#include <algorithm>
#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/matmul/matmul_backends.h"
#include "core/kernels/matmul/matmul_products.h"
#include "core/tensor/profile.h"

namespace slackline {

namespace cuda {

[[gnu::weak]] void matmul(StreamView stream, const MatmulArgs& args);

}  // namespace cuda

namespace {

void check_matrix(const Tensor& tensor, const char* name) {
  SL_CHECK(tensor.shape().rank() == 2,
           std::string("matmul ") + name + " is a matrix, not " + tensor.shape().to_string());
}

// An epilogue tensor, if given: its shape, and C's type or A's.
void check_epilogue(const Tensor& tensor, const char* name, const Shape& shape, DType also) {
  if (tensor.empty()) {
    return;
  }
  SL_CHECK(tensor.shape() == shape,
           std::string("matmul ") + name + " is " + tensor.shape().to_string() + ", due is " +
               shape.to_string());
  SL_CHECK(tensor.dtype() == DType::f32 || tensor.dtype() == also,
           std::string("matmul ") + name + " is " + std::string(name_of(tensor.dtype())));
}

// Workspaces are computed with tensors that have a shape and no memory.
bool makes_bias_gradient(const MatmulArgs& args) {
  return args.bias_gradient.shape().rank() > 0;
}

void check_arguments(const MatmulArgs& args) {
  check_matrix(args.a, "A");
  check_matrix(args.b, "B");
  check_matrix(args.c, "C");
  const int k_of_b = args.transpose_b == Transpose::yes ? 1 : 0;
  const int k_of_a = args.transpose_a == Transpose::yes ? 0 : 1;
  SL_CHECK_EQ(args.a.dim(k_of_a), args.b.dim(k_of_b));
  SL_CHECK_EQ(args.c.dim(0), args.a.dim(1 - k_of_a));
  SL_CHECK_EQ(args.c.dim(1), args.b.dim(1 - k_of_b));
  SL_CHECK(args.a.dim(k_of_a) > 0, "matmul sums over no elements");
  SL_CHECK(args.a_row() >= args.a.dim(1) && args.c_row() >= args.c.dim(1),
           "matmul rows of A or C that lie in each other");
  SL_CHECK(args.c_row() == args.c.dim(1) ||
               (args.bias.empty() && args.gelu_output.empty() && args.gelu_input.empty()),
           "matmul with an epilogue has the rows of C side by side");

  const DType dtype = args.a.dtype();
  SL_CHECK(args.b.dtype() == dtype, "matmul A and B have different types");
  SL_CHECK(args.c.dtype() == dtype || args.c.dtype() == DType::f32,
           "matmul C has a type of its own");
  check_epilogue(args.bias, "bias", Shape{args.c.dim(1)}, dtype);
  check_epilogue(args.gelu_output, "gelu_output", args.c.shape(), dtype);
  check_epilogue(args.gelu_input, "gelu_input", args.c.shape(), dtype);
  if (args.accumulate == Accumulate::yes) {
    SL_CHECK(args.c.dtype() == DType::f32, "matmul accumulates in f32 only");
    SL_CHECK(args.gelu_output.empty() && args.gelu_input.empty(),
             "matmul with a GELU cannot accumulate");
  }
  if (makes_bias_gradient(args)) {
    check_epilogue(args.bias_gradient, "bias_gradient", Shape{args.c.dim(1)}, DType::f32);
    SL_CHECK(args.c.dim(0) > 0 && args.transpose_b == Transpose::no && args.bias.empty() &&
                 args.gelu_output.empty() && args.gelu_input.empty(),
             "matmul with a bias gradient takes B as it is, and no epilogue");
  }
}

bool runs_in_bf16(const MatmulArgs& args) {
  return args.a.dtype() == DType::bf16 && matmul_uses_bf16_units();
}

void multiply_on_cpu(StreamView stream, const MatmulArgs& args) {
  if (runs_in_bf16(args)) {
    cpu::matmul_by_onednn(stream, args);
  } else if (args.a.dtype() == DType::bf16) {
    cpu::matmul_in_f32<BFloat16>(stream, args);
  } else {
    SL_CHECK(args.a.dtype() == DType::f32,
             "matmul does not take " + std::string(name_of(args.a.dtype())));
    cpu::matmul_in_f32<float>(stream, args);
  }
}

}  // namespace

MatmulShape shape_of(const MatmulArgs& args) {
  return {.M = static_cast<std::size_t>(args.c.dim(0)),
          .N = static_cast<std::size_t>(args.c.dim(1)),
          .K = static_cast<std::size_t>(args.a.dim(args.transpose_a == Transpose::yes ? 0 : 1))};
}

void matmul(StreamView stream, const MatmulArgs& args) {
  check_arguments(args);
  if (args.c.num_elements() == 0) {
    return;
  }
  const MatmulShape shape = shape_of(args);
  rehearse(stream, 2.0 * static_cast<double>(shape.M * shape.N * shape.K));
  if (stream.device() == Device::cuda) {
    cuda::matmul(stream, args);
    return;
  }
  if (computes(stream)) {
    multiply_on_cpu(stream, args);
  }
  if (makes_bias_gradient(args)) {
    const ProfileRange range(stream, "bias gradient");
    bias_gradient(stream, args.b, args.bias_gradient);
  }
}

std::size_t matmul_workspace_bytes(const MatmulArgs& args, const Workers& workers) {
  check_arguments(args);
  if (args.c.num_elements() == 0) {
    return 0;
  }
  const std::size_t sums = makes_bias_gradient(args) ? bias_gradient_workspace_bytes(
                                                           args.b.dim(0), args.b.dim(1), workers)
                                                     : 0;
  if (workers.device == Device::cuda) {
    const std::size_t rows =
        makes_bias_gradient(args) ? 2 * Arena::aligned_bytes(DType::f32, {args.c.dim(1)}) : 0;
    return rows + std::max(cuda::kProductScratch, sums);
  }
  return std::max(sums,
                  runs_in_bf16(args)
                      ? cpu::matmul_by_onednn_workspace_bytes(args, workers.num_threads)
                      : cpu::matmul_in_f32_workspace_bytes(args, workers.num_threads));
}

}  // namespace slackline
