#include "core/cuda/ranges.h"

#include <nvtx3/nvToolsExt.h>

namespace slackline::cuda {

void begin_range(const std::string& name) {
  nvtxRangePushA(name.c_str());
}

void end_range() {
  nvtxRangePop();
}

}  // namespace slackline::cuda
