#include "core/kernels/matmul/cublas_product.h"

#include <utility>

#include "core/error.h"
#include "core/kernels/matmul/matmul_backends.h"
#include "core/kernels/matmul/matmul_products.h"

// cuBLASLt counts columns first: our row-major C (M, N) is its (N, M), so it computes
// C^T = op(B)^T op(A)^T. Its A is our B, and the other way round. A bias, which runs along our
// columns, runs along its rows as it should, and sums over the rows of our B are its gradient of a
// bias of A (BGRADA).
namespace slackline::cuda {

namespace {

cudaDataType_t type_of(DType dtype) {
  SL_CHECK(dtype == DType::f32 || dtype == DType::bf16, std::string(name_of(dtype)));
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasLtHandle_t handle() {
  thread_local const auto made = [] {
    cublasLtHandle_t handle = nullptr;
    SL_CUBLAS_CHECK(cublasLtCreate(&handle));
    return CublasOwner<cublasLtHandle_t, cublasLtDestroy>(handle);
  }();
  return made.get();
}

cublasLtMatmulDesc_t new_description() {
  cublasLtMatmulDesc_t made = nullptr;
  SL_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  return made;
}

// A row-major matrix, whose rows are cuBLASLt's columns and lie `row` elements apart.
cublasLtMatrixLayout_t new_layout(const Tensor& matrix, std::int64_t row) {
  cublasLtMatrixLayout_t made = nullptr;
  SL_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&made,
                                             type_of(matrix.dtype()),
                                             static_cast<std::uint64_t>(matrix.dim(1)),
                                             static_cast<std::uint64_t>(matrix.dim(0)),
                                             row));
  return made;
}

cublasOperation_t operation(Transpose transpose) {
  return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

bool is_aligned_row(std::int64_t num_columns) {
  constexpr std::int64_t kAuxMultiple = 8;  // of what GELU's second matrix has in a row
  return num_columns % kAuxMultiple == 0;
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(std::string(call) + " failed: " + cublasLtGetStatusString(status));
  }
}

std::string text_of(const ProductProblem& problem) {
  const auto name = [](DType dtype) { return std::string(name_of(dtype)); };
  std::string text = std::to_string(problem.M) + " x " + std::to_string(problem.N) + " x " +
                     std::to_string(problem.K) + ", " + name(problem.of_a) + " to " +
                     name(problem.of_c);
  text += problem.transpose_a == Transpose::yes ? ", A transposed" : "";
  text += problem.transpose_b == Transpose::yes ? ", B transposed" : "";
  if (problem.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    text += ", epilogue " + std::to_string(static_cast<int>(problem.epilogue)) + " with " +
            name(problem.of_vector) + " and " + name(problem.of_second);
  }
  for (const auto& [row, of] :
       {std::pair(problem.row_of_a, "A"), std::pair(problem.row_of_c, "C")}) {
    text += row == 0 ? "" : ", rows of " + std::string(of) + " of " + std::to_string(row);
  }
  return text + ", aligned to " + std::to_string(problem.alignment);
}

CublasProduct::CublasProduct(const MatmulArgs& args)
    : args_(args),
      output_(args.c),
      description_(new_description()),
      a_(new_layout(args.b, args.b.dim(1))),
      b_(new_layout(args.a, args.a_row())),
      c_(new_layout(args.c, args.c_row())) {
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(args.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(args.transpose_a));
}

template <typename T>
void CublasProduct::set(cublasLtMatmulDescAttributes_t attribute, T value) {
  SL_CUBLAS_CHECK(
      cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof(value)));
}

bool CublasProduct::add_epilogue() {
  const bool has_bias = !args_.bias.empty();
  if (has_bias) {
    vector_ = args_.bias;
    epilogue_ = CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector_.raw());
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(vector_.dtype()));
  }
  // The second matrix of a GELU is what it is taken of: C, or what the forward pass kept of it.
  if (!args_.gelu_output.empty()) {
    epilogue_ = has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    output_ = args_.gelu_output;
    second_ = args_.c;
    if (!args_.gelu_input.empty() || output_.dtype() != second_.dtype()) {
      return false;
    }
  } else if (!args_.gelu_input.empty()) {
    epilogue_ = CUBLASLT_EPILOGUE_DGELU;
    second_ = args_.gelu_input;
    if (has_bias) {
      return false;
    }
  }
  if (!second_.empty()) {
    if (!is_aligned_row(args_.c.dim(1))) {
      return false;
    }
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, second_.raw());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, second_.dim(1));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(second_.dtype()));
  }
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_);
  return true;
}

void CublasProduct::add_column_sums(const Tensor& sums) {
  vector_ = sums;
  epilogue_ = CUBLASLT_EPILOGUE_BGRADA;
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, sums.raw());
  set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(sums.dtype()));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_);
}

ProductProblem CublasProduct::problem() const {
  constexpr std::uintptr_t kMostAsked = 16;  // by any algorithm
  std::uintptr_t bits = kMostAsked;
  for (const Tensor* operand : {&args_.a, &args_.b, &args_.c, &output_, &vector_, &second_}) {
    bits |= reinterpret_cast<std::uintptr_t>(operand->raw());
  }
  const MatmulShape shape = shape_of(args_);
  const DType of_c = args_.c.dtype();
  return {.M = shape.M,
          .N = shape.N,
          .K = shape.K,
          .transpose_a = args_.transpose_a,
          .transpose_b = args_.transpose_b,
          .epilogue = epilogue_,
          .of_a = args_.a.dtype(),
          .of_c = of_c,
          .of_vector = vector_.empty() ? of_c : vector_.dtype(),
          .of_second = second_.empty() ? of_c : second_.dtype(),
          .alignment = bits & (~bits + 1),
          .same_bits = args_.same_bits,
          .row_of_a = args_.a_row() == args_.a.dim(1) ? 0 : args_.a_row(),
          .row_of_c = args_.c_row() == args_.c.dim(1) ? 0 : args_.c_row()};
}

std::size_t CublasProduct::output_bytes() const {
  return static_cast<std::size_t>(output_.dim(0) * args_.c_row()) * size_of(output_.dtype());
}

std::vector<cublasLtMatmulAlgo_t> CublasProduct::suggestions(int most) const {
  cublasLtMatmulPreference_t made = nullptr;
  SL_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  const CublasOwner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    SL_CUBLAS_CHECK(
        cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kProductWorkspace});
  const auto bytes = static_cast<std::uint32_t>(problem().alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(),
                                                               description_.get(),
                                                               a_.get(),
                                                               b_.get(),
                                                               c_.get(),
                                                               c_.get(),
                                                               preference.get(),
                                                               most,
                                                               results.data(),
                                                               &count);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) {
      algorithms.push_back(results[i].algo);
    }
  }
  return algorithms;
}

bool CublasProduct::takes(const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle(), description_.get(), a_.get(), b_.get(), c_.get(), c_.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kProductWorkspace;
}

cublasStatus_t CublasProduct::queue(StreamView stream,
                                    const cublasLtMatmulAlgo_t& algorithm,
                                    void* elsewhere) const {
  ArenaScope scratch(stream.workspace());
  void* workspace = scratch.allocate(DType::u8, {static_cast<std::int64_t>(kProductScratch)}).raw();
  std::size_t room = kProductScratch;
  std::align(kProductWorkspaceAlignment, kProductWorkspace, workspace, room);
  const float alpha = 1.0F;
  const float beta = args_.accumulate == Accumulate::yes ? 1.0F : 0.0F;
  return cublasLtMatmul(handle(),
                        description_.get(),
                        &alpha,
                        args_.b.raw(),
                        a_.get(),
                        args_.a.raw(),
                        b_.get(),
                        &beta,
                        output_.raw(),
                        c_.get(),
                        elsewhere == nullptr ? output_.raw() : elsewhere,
                        c_.get(),
                        &algorithm,
                        workspace,
                        kProductWorkspace,
                        stream.cuda().handle());
}

}  // namespace slackline::cuda
