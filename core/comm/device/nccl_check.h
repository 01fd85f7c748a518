#pragma once

#include <string>

#include <nccl.h>

#include "core/error.h"

namespace slackline {

// Throws DeviceError that names the call where NCCL says that it failed. What is still under way
// has not.
inline void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess && result != ncclInProgress) {
    throw DeviceError(std::string(call) + " failed: " + ncclGetErrorString(result));
  }
}

#define SL_NCCL_CHECK(call) check_nccl((call), #call)

}  // namespace slackline
