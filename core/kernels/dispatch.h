#pragma once

#include <string>

#include "core/check.h"
#include "core/dtype.h"
#include "core/rehearsal_clock.h"
#include "core/stream.h"

namespace slackline {

// False on the rehearsal device, where an op that has checked its arguments is done.
[[nodiscard]] inline bool computes(StreamView stream) {
  SL_CHECK(stream.device() != Device::cuda, "no such backend");
  return stream.device() == Device::cpu;
}

// Tells the rehearsal device how much an op would compute: the ops that a step's time goes into.
inline void rehearse(StreamView stream, double operations) {
  if (stream.device() == Device::rehearsal) {
    stream.rehearsal()->work(operations);
  }
}

}  // namespace slackline

// The one place where an op chooses its backend and element type:
//   SL_DISPATCH(stream, dtype, gelu_forward, stream, args)
// calls cpu::gelu_forward<float>(stream, args) or the bf16 twin. Backends are folders' files
// (gelu_cpu.cpp), each explicitly instantiating float and BFloat16.
// TODO when the CUDA kernels land: the cuda:: branch, decided here and nowhere else.
#define SL_DISPATCH(stream, dtype, function, ...)                                   \
  do {                                                                              \
    if (!::slackline::computes(stream)) {                                           \
      break;                                                                        \
    }                                                                               \
    switch (dtype) {                                                                \
      case ::slackline::DType::f32:                                                 \
        cpu::function<float>(__VA_ARGS__);                                          \
        break;                                                                      \
      case ::slackline::DType::bf16:                                                \
        cpu::function<::slackline::BFloat16>(__VA_ARGS__);                          \
        break;                                                                      \
      default:                                                                      \
        SL_CHECK(false, #function " does not take " + std::string(name_of(dtype))); \
    }                                                                               \
  } while (false)
