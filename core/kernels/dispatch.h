#pragma once

#include <string>

#include "core/check.h"
#include "core/rehearsal_clock.h"
#include "core/tensor/dtype.h"
#include "core/tensor/stream.h"

namespace slackline {

// False on the rehearsal device, where an op that has checked its arguments is done.
[[nodiscard]] inline bool computes(StreamView stream) {
  return stream.device() != Device::rehearsal;
}

// Tells the rehearsal device how much an op would compute: the ops that a step's time goes into.
inline void rehearse(StreamView stream, double operations) {
  if (stream.rehearsal() != nullptr) {
    stream.rehearsal()->work(operations);
  }
}

}  // namespace slackline

// Declares a function of an op's backends, as `T f(arguments)`. Programs without the CUDA backend
// have no definition of cuda::f, nor a stream that would lead to it: hence weak.
#define SL_BACKENDS(...)     \
  namespace cpu {            \
  __VA_ARGS__;               \
  }                          \
  namespace cuda {           \
  [[gnu::weak]] __VA_ARGS__; \
  }

// Declares a template of the element type likewise.
#define SL_BACKENDS_OF_TYPE(...) \
  namespace cpu {                \
  template <typename T>          \
  __VA_ARGS__;                   \
  }                              \
  namespace cuda {               \
  template <typename T>          \
  [[gnu::weak]] __VA_ARGS__;     \
  }

// The one place where an op chooses its backend and element type:
//   SL_DISPATCH(stream, dtype, accumulate, stream, from, to)
// calls cpu::accumulate<float>(stream, from, to), or the twin for bf16 or in cuda::. Backends are
// folders' files (elementwise_cpu.cpp, elementwise_cuda.cu), each explicitly instantiating float
// and BFloat16.
#define SL_DISPATCH(stream, dtype, function, ...)                                   \
  do {                                                                              \
    switch (dtype) {                                                                \
      case ::slackline::DType::f32:                                                 \
        SL_BACKEND(stream, function<float>, __VA_ARGS__);                           \
        break;                                                                      \
      case ::slackline::DType::bf16:                                                \
        SL_BACKEND(stream, function<::slackline::BFloat16>, __VA_ARGS__);           \
        break;                                                                      \
      default:                                                                      \
        SL_CHECK(false, #function " does not take " + std::string(name_of(dtype))); \
    }                                                                               \
  } while (false)

// The same for a function of one element type: SL_BACKEND(stream, adamw, stream, tensors, step).
#define SL_BACKEND(stream, function, ...)  \
  do {                                     \
    switch ((stream).device()) {           \
      case ::slackline::Device::cpu:       \
        cpu::function(__VA_ARGS__);        \
        break;                             \
      case ::slackline::Device::cuda:      \
        cuda::function(__VA_ARGS__);       \
        break;                             \
      case ::slackline::Device::rehearsal: \
        break;                             \
    }                                      \
  } while (false)
