#include "core/cuda/cuda_graph.h"

#include <exception>

#include "core/cuda/check_cuda.h"

namespace slackline {

namespace {

// Null where the work could not be captured.
cudaGraph_t captured(cudaStream_t stream, const std::function<void()>& work) {
  // Other threads of the rank go on as they were.
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  bool refused = false;
  try {
    work();
  } catch (const std::exception&) {
    refused = true;
  }
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || refused) {
    cudaGetLastError();
    if (graph != nullptr) {
      cudaGraphDestroy(graph);
    }
    return nullptr;
  }
  return graph;
}

}  // namespace

std::unique_ptr<CudaGraph> CudaGraph::capture(const CudaStream& stream,
                                              const std::function<void()>& work) {
  const cudaGraph_t graph = captured(stream.handle(), work);
  if (graph == nullptr) {
    return nullptr;
  }
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return std::make_unique<CudaGraph>(executable);
}

CudaGraph::~CudaGraph() {
  cudaGraphExecDestroy(executable_);
}

void CudaGraph::launch(const CudaStream& stream) const {
  SL_CUDA_CHECK(cudaGraphLaunch(executable_, stream.handle()));
}

}  // namespace slackline
