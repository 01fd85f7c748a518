#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "core/cuda/cuda_graph.h"
#include "model/pass.h"
#include "parallel/schedule/ops.h"

namespace slackline {

// Passes of stages as CUDA graphs. A pass of a micro-batch queues the same kernels with the same
// arguments in every step, if nothing but the step's number changes and nobody is told in its midst
// of what it did. It runs as it is the first time, when algorithms are chosen and buffers made; is
// captured the second time; and is launched as a whole from then on.
class PassGraphs {
 public:
  // What body depends on besides the Pass.
  struct Kind {
    schedule::Op op{};
    bool evaluates = false;
    int slot = 0;
    float scale = 0.0F;  // of the loss

    auto operator<=>(const Kind&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  // Runs `body`, which makes the pass, or its graph.
  void run(const Kind& kind, const Pass& pass, const std::function<void()>& body);

 private:
  // All that may differ from one pass to another of a run.
  struct Key {
    Kind kind{};
    Accumulate accumulate = Accumulate::no;
    const void* tokens = nullptr;
    const void* targets = nullptr;
    std::size_t losses = 0;  // where in LossSum its own go

    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  struct Entry {
    std::unique_ptr<CudaGraph> graph{};
    std::size_t losses = 0;  // how many places of LossSum it takes
  };

  [[nodiscard]] bool can_capture(const Pass& pass) const;
  // Logs, once, how many passes are graphs.
  void tell();
  void capture(const Pass& pass, Entry& entry, const std::function<void()>& body);

  static constexpr std::size_t kMost = 512;  // graphs, lest changing addresses fill the memory

  std::map<Key, Entry> entries_{};  // of passes that have run
  bool refused_ = false;            // CUDA has refused one; nothing more is tried
  bool told_ = false;               // the log says that there are some
};

}  // namespace slackline
