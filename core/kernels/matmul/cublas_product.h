#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <cublasLt.h>

#include "core/kernels/matmul/matmul.h"

// One product in cuBLASLt's terms. Private to the files that call the library.
namespace slackline::cuda {

// All that the library's choice of an algorithm may depend on. Whether C is added to is no part of
// it: the library is not told when it is asked.
struct ProductProblem {
  std::size_t M = 0, N = 0, K = 0;
  Transpose transpose_a{}, transpose_b{};
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  DType of_a{}, of_c{};
  DType of_vector{};             // a bias, or the column sums of B; C's where there is none
  DType of_second{};             // GELU's second matrix; C's where there is none
  std::uintptr_t alignment = 0;  // bytes, the least of all operands, 16 at most
  SameBits same_bits{};
  std::int64_t row_of_a = 0, row_of_c = 0;  // 0: side by side

  auto operator<=>(const ProductProblem&) const = default;  // NOLINT(modernize-use-nullptr)
};

// "16384 x 2304 x 768, bf16 to f32, A transposed, epilogue 4 with bf16 and bf16, aligned
// to 16".
[[nodiscard]] std::string text_of(const ProductProblem& problem);

template <auto destroy>
struct DestroyCublas {
  template <typename T>
  void operator()(T* object) const {
    destroy(object);
  }
};

template <typename T, auto destroy>
using CublasOwner = std::unique_ptr<std::remove_pointer_t<T>, DestroyCublas<destroy>>;

// C = op(A) op(B) [+ C] and what is added to it here. A view of the arguments, which must outlive
// it.
class CublasProduct {
 public:
  // Without any epilogue.
  explicit CublasProduct(const MatmulArgs& args);

  // Bias and GELU of the arguments. False where the library has none of that kind; the product is
  // of no use then.
  [[nodiscard]] bool add_epilogue();

  // Writes the sums of B's columns over K to `sums` (N). REQUIRES: it has C's type, and B is not
  // transposed.
  void add_column_sums(const Tensor& sums);

  [[nodiscard]] const MatmulArgs& args() const { return args_; }

  [[nodiscard]] ProductProblem problem() const;

  // The library's suggestions, best first as it thinks; none where it has no algorithm.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> suggestions(int most) const;

  // Whether the library takes the algorithm, within kProductWorkspace.
  [[nodiscard]] bool takes(const cublasLtMatmulAlgo_t& algorithm) const;

  // Where the sum goes: C, or what GELU makes of it.
  [[nodiscard]] const Tensor& output() const { return output_; }

  // The memory of a matrix as large as the output, rows that lie apart included.
  [[nodiscard]] std::size_t output_bytes() const;

  // Queues the product. With `elsewhere` the output is written there, and C is only read.
  [[nodiscard]] cublasStatus_t queue(StreamView stream,
                                     const cublasLtMatmulAlgo_t& algorithm,
                                     void* elsewhere = nullptr) const;

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value);

  const MatmulArgs& args_;
  Tensor output_;
  Tensor vector_;
  Tensor second_;
  cublasLtEpilogue_t epilogue_ = CUBLASLT_EPILOGUE_DEFAULT;
  CublasOwner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description_;
  CublasOwner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a_, b_, c_;  // the library's
};

// Throws DeviceError with the call and the library's own words for it.
void check_cublas(cublasStatus_t status, const char* call);

}  // namespace slackline::cuda

#define SL_CUBLAS_CHECK(call) ::slackline::cuda::check_cublas((call), #call)
