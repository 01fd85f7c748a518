#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include <cublasLt.h>

#include "core/cuda/check_cuda.h"
#include "core/cuda/matmul_products.h"
#include "core/error.h"
#include "core/kernels/matmul_backends.h"

// cuBLASLt counts columns first: our row-major C (M, N) is its (N, M), so it computes
// C^T = op(B)^T op(A)^T, and bias, which runs along our columns, runs along its rows as it should.
//
// Sums run in fp32 (CUBLAS_COMPUTE_32F: no TF32). The library's first suggestion for a shape is
// taken and kept: it depends on the shape, the library and the card alone, so a run gives the same
// bits each time.
namespace slackline::cuda {

namespace {

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(std::string(call) + " failed: " + cublasLtGetStatusString(status));
  }
}

#define SL_CUBLAS_CHECK(call) check_cublas((call), #call)

template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* object) const {
    destroy(object);
  }
};

using Description = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>,
                                    Destroy<cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>,
                               Destroy<cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                                   Destroy<cublasLtMatmulPreferenceDestroy>>;

cudaDataType_t type_of(DType dtype) {
  SL_CHECK(dtype == DType::f32 || dtype == DType::bf16, std::string(name_of(dtype)));
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasLtHandle_t handle() {
  thread_local const auto made = [] {
    cublasLtHandle_t handle = nullptr;
    SL_CUBLAS_CHECK(cublasLtCreate(&handle));
    return std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy<cublasLtDestroy>>(
        handle);
  }();
  return made.get();
}

template <typename T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, T value) {
  SL_CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)));
}

Description description_of(const MatmulArgs& args) {
  cublasLtMatmulDesc_t made = nullptr;
  SL_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Description description(made);
  const auto operation = [](Transpose transpose) {
    return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(args.transpose_b));
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(args.transpose_a));
  return description;
}

// A row-major matrix, whose rows are cuBLASLt's columns.
Layout layout_of(const Tensor& matrix) {
  cublasLtMatrixLayout_t made = nullptr;
  SL_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&made,
                                             type_of(matrix.dtype()),
                                             static_cast<std::uint64_t>(matrix.dim(1)),
                                             static_cast<std::uint64_t>(matrix.dim(0)),
                                             matrix.dim(1)));
  return Layout(made);
}

// What the library may take into account when it suggests an algorithm.
using Problem = std::tuple<std::size_t,
                           std::size_t,
                           std::size_t,
                           DType,
                           DType,
                           Transpose,
                           Transpose,
                           Accumulate,
                           cublasLtEpilogue_t,
                           std::uintptr_t>;

// The least alignment of the operands, up to what any algorithm asks for.
std::uintptr_t alignment_of(const MatmulArgs& args, const void* output) {
  std::uintptr_t bits = 16;
  for (const void* pointer : {static_cast<const void*>(args.a.raw()),
                              static_cast<const void*>(args.b.raw()),
                              static_cast<const void*>(args.c.raw()),
                              output}) {
    bits |= reinterpret_cast<std::uintptr_t>(pointer);
  }
  return bits & (~bits + 1);
}

struct Product {
  const MatmulArgs& args;
  void* output = nullptr;  // C, or what GELU makes of it
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const Description& description;
};

std::optional<cublasLtMatmulAlgo_t> suggested_algorithm(const Product& product,
                                                        const Layout& a,
                                                        const Layout& b,
                                                        const Layout& c) {
  static std::mutex mutex;
  static std::map<Problem, std::optional<cublasLtMatmulAlgo_t>> known;
  const MatmulArgs& args = product.args;
  const MatmulShape shape = shape_of(args);
  const std::uintptr_t alignment = alignment_of(args, product.output);
  const Problem problem{shape.M,
                        shape.N,
                        shape.K,
                        args.a.dtype(),
                        args.c.dtype(),
                        args.transpose_a,
                        args.transpose_b,
                        args.accumulate,
                        product.epilogue,
                        alignment};
  const std::scoped_lock lock(mutex);
  const auto found = known.find(problem);
  if (found != known.end()) {
    return found->second;
  }
  cublasLtMatmulPreference_t made = nullptr;
  SL_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  const Preference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    SL_CUBLAS_CHECK(
        cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kProductWorkspace});
  const auto bytes = static_cast<std::uint32_t>(alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes);
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(),
                                                               product.description.get(),
                                                               a.get(),
                                                               b.get(),
                                                               c.get(),
                                                               c.get(),
                                                               preference.get(),
                                                               1,
                                                               &result,
                                                               &count);
  std::optional<cublasLtMatmulAlgo_t> algorithm;
  if (status == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS) {
    algorithm = result.algo;
  }
  known.emplace(problem, algorithm);
  return algorithm;
}

// False where the library has no algorithm.
bool multiply(StreamView stream, const Product& product) {
  const MatmulArgs& args = product.args;
  const Layout a = layout_of(args.b);  // C^T = op(B)^T op(A)^T
  const Layout b = layout_of(args.a);
  const Layout c = layout_of(args.c);
  const std::optional<cublasLtMatmulAlgo_t> algorithm = suggested_algorithm(product, a, b, c);
  if (!algorithm) {
    return false;
  }
  ArenaScope scratch(stream.workspace());
  const Tensor workspace =
      scratch.allocate(DType::u8, {static_cast<std::int64_t>(kProductWorkspace)});
  const float alpha = 1.0F;
  const float beta = args.accumulate == Accumulate::yes ? 1.0F : 0.0F;
  SL_CUBLAS_CHECK(cublasLtMatmul(handle(),
                                 product.description.get(),
                                 &alpha,
                                 args.b.raw(),
                                 a.get(),
                                 args.a.raw(),
                                 b.get(),
                                 &beta,
                                 product.output,
                                 c.get(),
                                 product.output,
                                 c.get(),
                                 &*algorithm,
                                 workspace.raw(),
                                 workspace.bytes(),
                                 stream.cuda().handle()));
  return true;
}

bool is_aligned_row(std::int64_t num_columns) {
  constexpr std::int64_t kAuxMultiple = 8;  // of what GELU's second matrix has in a row
  return num_columns % kAuxMultiple == 0;
}

}  // namespace

bool fused_product(StreamView stream, const MatmulArgs& args) {
  const Description description = description_of(args);
  Product product{.args = args, .output = args.c.raw(), .description = description};
  const bool has_bias = !args.bias.empty();
  if (has_bias) {
    product.epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.raw());
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(args.bias.dtype()));
  }
  // The second matrix of a GELU is what it is taken of: C, or what the forward pass kept of it.
  Tensor of_gelu;
  if (!args.gelu_output.empty()) {
    product.epilogue = has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    product.output = args.gelu_output.raw();
    of_gelu = args.c;
    if (!args.gelu_input.empty() || args.gelu_output.dtype() != args.c.dtype()) {
      return false;
    }
  } else if (!args.gelu_input.empty()) {
    if (has_bias) {
      return false;
    }
    product.epilogue = CUBLASLT_EPILOGUE_DGELU;
    of_gelu = args.gelu_input;
  }
  if (!of_gelu.empty()) {
    if (!is_aligned_row(args.c.dim(1))) {
      return false;
    }
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, of_gelu.raw());
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, of_gelu.dim(1));
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(of_gelu.dtype()));
  }
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, product.epilogue);
  return multiply(stream, product);
}

void plain_product(StreamView stream, const MatmulArgs& args) {
  const Description description = description_of(args);
  if (!multiply(stream, {.args = args, .output = args.c.raw(), .description = description})) {
    const MatmulShape shape = shape_of(args);
    throw DeviceError("cuBLASLt has no algorithm for a product of " + std::to_string(shape.M) +
                      " x " + std::to_string(shape.N) + " x " + std::to_string(shape.K));
  }
}

}  // namespace slackline::cuda
