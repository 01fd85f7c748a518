#include "tools/run/compression_state.h"

#include <set>
#include <sstream>

#include <fmt/format.h>

#include "core/comm/text_exchange.h"
#include "core/joined_text.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/log.h"
#include "core/tensor/buffer.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

using Workers = std::set<std::optional<std::int64_t>>;

Workers workers_of(const ManifestTensor& tensor) {
  Workers workers;
  for (const ManifestPiece& piece : tensor.pieces) {
    workers.insert(piece.worker);
  }
  return workers;
}

// The rectangle of every worker, added up in their order, and an equal part of that.
void share_out(StreamView stream,
               Checkpoint& checkpoint,
               const ChannelState& state,
               const Workers& workers) {
  const Buffer read = make_buffer("a worker's residual", DType::f32, state.data.shape());
  const Buffer sum = make_buffer("sum of residuals", DType::f32, state.data.shape());
  const Tensor one = read.view(DType::f32, state.data.shape());
  const Tensor all = sum.view(DType::f32, state.data.shape());
  Stream host({.name = "residuals"});
  fill_zero(host, one);  // outside the rectangle
  fill_zero(host, all);
  for (const std::optional<std::int64_t>& worker : workers) {
    checkpoint.read_part(state.name, state.region, one, state.place, worker);
    accumulate(host, one, all);
  }
  scale(host, all, 1.0F / static_cast<float>(state.num_workers), all);
  // Parts of one tensor come one by one, each into zeros.
  stream.synchronize();
  const HostTensor held(state.data);
  accumulate(host, all, held.tensor());
  held.write_back();
}

// Checkpoints that do not count updates are older than names by place: there the state of a
// boundary is named by the stage that sends, which may be another boundary now.
bool is_named_by_stage(const Checkpoint& checkpoint, const std::string& name) {
  return !checkpoint.updates() && name.starts_with("residual/pipeline_");
}

bool load(StreamView stream, Checkpoint& checkpoint, const ChannelState& state) {
  const auto found = checkpoint.tensors().find(state.name);
  if (found == checkpoint.tensors().end() || found->second.shape != state.logical ||
      is_named_by_stage(checkpoint, state.name)) {
    return false;
  }
  const Workers workers = workers_of(found->second);
  const bool same_workers =
      state.worker ? std::ssize(workers) == state.num_workers && workers.contains(state.worker)
                   : workers == Workers{std::nullopt};
  if (same_workers) {
    checkpoint.read_part(state.name, state.region, state.data, state.place, state.worker);
    return true;
  }
  if (!state.sums) {
    return false;
  }
  share_out(stream, checkpoint, state, workers);
  return true;
}

// The state as the run knows it: where groups train apart, each has its own.
std::vector<ChannelState> state_of_run(MeshModel& model, const OuterLoop* outer) {
  std::vector<ChannelState> states = model.channels().state();
  const Groups& groups = model.groups();
  if (outer == nullptr) {
    return states;
  }
  for (ChannelState& state : states) {
    state.worker =
        std::int64_t{groups.worker_index()} * state.num_workers + state.worker.value_or(0);
    state.num_workers *= groups.num_workers();
    state.sums = false;
  }
  const std::vector<ChannelState> rounds = outer->codec_state();
  states.insert(states.end(), rounds.begin(), rounds.end());
  return states;
}

}  // namespace

std::vector<CheckpointTensor> compression_tensors(MeshModel& model, const OuterLoop* outer) {
  std::vector<CheckpointTensor> tensors;
  for (const ChannelState& state : state_of_run(model, outer)) {
    if (state.saved) {
      tensors.push_back({.name = state.name,
                         .data = state.data,
                         .start = state.region.start,
                         .logical = state.logical,
                         .worker = state.worker,
                         .place = state.place});
    }
  }
  return tensors;
}

std::vector<std::string> load_compression_state(Checkpoint& checkpoint,
                                                MeshModel& model,
                                                const OuterLoop* outer) {
  std::vector<std::string> taken;
  for (const ChannelState& state : state_of_run(model, outer)) {
    if (load(model.stream(), checkpoint, state)) {
      taken.push_back(state.name);
    }
  }
  return taken;
}

std::vector<std::string> stored_compression_state(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.starts_with("residual/")) {
      names.push_back(is_named_by_stage(checkpoint, name) ? name + " (a stage's number)" : name);
    }
  }
  return names;
}

void report_dropped_state(const std::vector<std::string>& stored,
                          const std::vector<std::string>& taken,
                          Communicator& world) {
  std::set<std::string> left(stored.begin(), stored.end());
  for (const std::string& names : exchange_texts(world, joined(taken, "\n"), "compression state")) {
    std::istringstream lines(names);
    for (std::string name; std::getline(lines, name);) {
      left.erase(name);
    }
  }
  if (!left.empty() && world.rank() == 0) {
    log_info(fmt::format("compression state that has no place in this run begins anew: {}",
                         joined(std::vector<std::string>(left.begin(), left.end()), ", ")));
  }
}

}  // namespace slackline
