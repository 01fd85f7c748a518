#pragma once

#include <string>

namespace slackline::cuda {

// Ranges of the calling thread's launches, nested, for NVIDIA's profilers (NVTX). Next to nothing
// where none is attached, nothing without the backend.
void begin_range(const std::string& name);
void end_range();

}  // namespace slackline::cuda
