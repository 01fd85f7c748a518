#pragma once

#include <functional>
#include <memory>

#include "core/cuda/cuda_stream.h"

struct CUgraphExec_st;

namespace slackline {

// Work of a stream that can be queued again in one call: the same kernels with the same arguments.
class CudaGraph {
 public:
  // What `work` queues on the stream, of which nothing runs; null where CUDA refuses to capture it.
  // `work` may allocate nothing on the device and wait for nothing; what it throws is swallowed: it
  // may come of the capture, and else comes again where the work is done without one.
  [[nodiscard]] static std::unique_ptr<CudaGraph> capture(const CudaStream& stream,
                                                          const std::function<void()>& work);

  explicit CudaGraph(CUgraphExec_st* executable) : executable_(executable) {}

  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(const CudaStream& stream) const;

 private:
  CUgraphExec_st* executable_;
};

}  // namespace slackline
