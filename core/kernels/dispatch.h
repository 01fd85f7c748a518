#pragma once

#include <string>

#include "core/check.h"
#include "core/dtype.h"
#include "core/stream.h"

// The one place where an op chooses its backend and element type:
//   SL_DISPATCH(stream, dtype, gelu_forward, stream, args)
// calls cpu::gelu_forward<float>(stream, args) or the bf16 twin. Backends are folders' files
// (gelu_cpu.cpp), each explicitly instantiating float and BFloat16.
// TODO when the CUDA kernels land: the cuda:: branch, decided here and nowhere else.
#define SL_DISPATCH(stream, dtype, function, ...)                                   \
  do {                                                                              \
    SL_CHECK((stream).device() == ::slackline::Device::cpu, "no such backend");     \
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
