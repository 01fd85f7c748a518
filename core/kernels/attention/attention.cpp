#include "core/kernels/attention/attention.h"

#include <algorithm>

#include "core/kernels/attention/attention_head.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void attention_forward(StreamView stream, const AttentionForward& args))
SL_BACKENDS_OF_TYPE(void attention_backward(StreamView stream, const AttentionBackward& args))
SL_BACKENDS(void attention_decode(StreamView stream, const AttentionDecode& args))
SL_BACKENDS(void cache_keys_values(StreamView stream, const AttentionCache& args))

namespace cuda {

[[gnu::weak]] std::size_t attention_workspace_bytes(const AttentionSize& size);

}  // namespace cuda

namespace {

// (B, T, C) of an attention whose qkv is (B, T, 3 C), C a multiple of the heads.
Shape check_qkv(const Tensor& qkv, int num_heads) {
  SL_CHECK(
      qkv.shape().rank() == 3 && num_heads > 0 && qkv.dim(2) % (std::int64_t{3} * num_heads) == 0,
      "attention qkv is " + qkv.shape().to_string() + " for " + std::to_string(num_heads) +
          " heads, due is (B, T, 3 * heads * D)");
  return {qkv.dim(0), qkv.dim(1), qkv.dim(2) / 3};
}

// Operations of one causal product. A forward pass has two of them, a backward pass five.
double product_operations(const Shape& shape) {
  return static_cast<double>(shape[0]) * static_cast<double>(shape[1]) *
         static_cast<double>(shape[1]) * static_cast<double>(shape[2]);
}

}  // namespace

void attention_forward(StreamView stream, const AttentionForward& args) {
  const Shape shape = check_qkv(args.qkv, args.num_heads);
  const DType dtype = args.qkv.dtype();
  check_operand(args.output, {"attention_forward output", dtype, shape});
  check_operand(
      args.log_sum_exp,
      {"attention_forward log_sum_exp", DType::f32, Shape{shape[0], args.num_heads, shape[1]}});
  rehearse(stream, 2.0 * product_operations(shape));
  SL_DISPATCH(stream, dtype, attention_forward, stream, args);
}

void attention_backward(StreamView stream, const AttentionBackward& args) {
  const Shape shape = check_qkv(args.qkv, args.num_heads);
  const DType dtype = args.qkv.dtype();
  check_operand(args.output, {"attention_backward output", dtype, shape});
  check_operand(args.d_output, {"attention_backward d_output", dtype, shape});
  check_operand(args.d_qkv, {"attention_backward d_qkv", dtype, args.qkv.shape()});
  check_operand(
      args.log_sum_exp,
      {"attention_backward log_sum_exp", DType::f32, Shape{shape[0], args.num_heads, shape[1]}});
  rehearse(stream, 5.0 * product_operations(shape));
  SL_DISPATCH(stream, dtype, attention_backward, stream, args);
}

void attention_decode(StreamView stream, const AttentionDecode& args) {
  const Shape& query = args.query.shape();
  SL_CHECK(query.rank() == 2 && args.num_heads > 0 && query[1] % args.num_heads == 0,
           "attention_decode query is " + query.to_string() + " for " +
               std::to_string(args.num_heads) + " heads, due is (B, heads * D)");
  SL_CHECK(args.keys.shape().rank() == 3 && args.length > 0 && args.length <= args.keys.dim(1),
           "attention_decode keys are " + args.keys.shape().to_string() + " for length " +
               std::to_string(args.length));
  const Shape cache{query[0], args.keys.dim(1), query[1]};
  check_operand(args.query, {"attention_decode query", DType::f32, query});
  check_operand(args.keys, {"attention_decode keys", DType::f32, cache});
  check_operand(args.values, {"attention_decode values", DType::f32, cache});
  check_operand(args.output, {"attention_decode output", DType::f32, query});
  SL_BACKEND(stream, attention_decode, stream, args);
}

void cache_keys_values(StreamView stream, const AttentionCache& args) {
  const Shape& cache = args.keys.shape();
  SL_CHECK(cache.rank() == 2 && args.qkv.shape().rank() == 2 && args.first >= 0 &&
               args.first + args.qkv.dim(0) <= cache[0],
           "cache_keys_values of " + args.qkv.shape().to_string() + " from row " +
               std::to_string(args.first) + " of " + cache.to_string());
  check_operand(args.qkv, {"cache_keys_values qkv", DType::f32, {args.qkv.dim(0), 3 * cache[1]}});
  check_operand(args.keys, {"cache_keys_values keys", DType::f32, cache});
  check_operand(args.values, {"cache_keys_values values", DType::f32, cache});
  SL_BACKEND(stream, cache_keys_values, stream, args);
}

std::size_t attention_workspace_bytes(const AttentionSize& size, const Workers& workers) {
  if (workers.device == Device::cuda) {
    return cuda::attention_workspace_bytes(size);
  }
  const attention::HeadSize head(static_cast<std::size_t>(size.T),
                                 static_cast<std::size_t>(size.D));
  const std::size_t elements = std::max(attention::forward_scratch_elements(head),
                                        attention::backward_scratch_elements(head));
  return Arena::aligned_bytes(DType::f32,
                              Shape{workers.num_threads, static_cast<std::int64_t>(elements)});
}

}  // namespace slackline
