#include "parallel/step/pass_graphs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/log.h"
#include "model/loss_sum.h"

namespace slackline {

bool PassGraphs::can_capture(const Pass& pass) const {
  // Masks of dropout are functions of the step, which kernels take by value; transfers, told users
  // and filters are of the host; a profile wants times of ops.
  return !refused_ && pass.stream.device() == Device::cuda && pass.dropout == 0.0F &&
         pass.use == nullptr && pass.filter == nullptr && pass.sum->share().size == 1 &&
         pass.stream.profile() == nullptr;
}

void PassGraphs::run(const Kind& kind, const Pass& pass, const std::function<void()>& body) {
  if (!can_capture(pass)) {
    body();
    return;
  }
  const Key key{.kind = kind,
                .accumulate = pass.accumulate,
                .tokens = pass.batch.tokens.raw(),
                .targets = pass.batch.targets.raw(),
                .losses = pass.losses->num_pending()};
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    body();
    if (entries_.size() < kMost) {
      entries_.emplace(key, Entry());
    }
    return;
  }
  Entry& entry = found->second;
  if (entry.graph == nullptr) {
    capture(pass, entry, body);
  } else {
    pass.losses->expect_again(entry.losses);
    tell();
  }
  entry.graph == nullptr ? body() : entry.graph->launch(pass.stream.cuda());
}

void PassGraphs::tell() {
  if (!std::exchange(told_, true)) {
    const auto captured = std::ranges::count_if(
        entries_, [](const auto& entry) { return entry.second.graph != nullptr; });
    log_info(std::to_string(captured) + " passes are CUDA graphs from here on");
  }
}

void PassGraphs::capture(const Pass& pass, Entry& entry, const std::function<void()>& body) {
  const std::size_t before = pass.losses->num_pending();
  entry.graph = CudaGraph::capture(pass.stream.cuda(), body);
  if (entry.graph == nullptr) {
    pass.losses->forget_since(before);
    refused_ = true;
    log_warning("CUDA refuses to capture a pass; run.cuda_graphs changes nothing");
    return;
  }
  entry.losses = pass.losses->num_pending() - before;
}

}  // namespace slackline
