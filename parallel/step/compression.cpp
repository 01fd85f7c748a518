#include "parallel/step/compression.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

// What belongs to one tensor rank alone: its slice of an array with a leading dimension of ranks.
void place_by_rank(CompressionState& state, int rank, int size) {
  const Shape& shape = state.data.shape();
  state.logical = Shape{size, shape[0], shape[1]};
  state.region = {.start = {rank, 0, 0}, .shape = Shape{1, shape[0], shape[1]}};
  state.place = {.shape = state.region.shape, .region = whole_region(state.region.shape)};
}

}  // namespace

std::string boundary_label(const std::string& place, int number) {
  return number == 1 ? place : fmt::format("{}+{}", place, number);
}

Compression::Compression(const Options& options, GradientReducer& reducer, const Groups& groups)
    : options_(options),
      reducer_(&reducer),
      groups_(&groups),
      pipeline_(options.pipeline),
      errors_(options.errors) {
  if (!options_.plans.empty()) {
    put_in_force(1);
  }
}

// A step that an exception cut short may have left transfers that would begin to use codecs.
Compression::~Compression() {
  if (worker_ != nullptr) {
    worker_->stop();
  }
}

void Compression::begin_step(std::int64_t step) {
  reducer_->begin_step(static_cast<std::uint64_t>(step));
  rest();
  put_in_force(step);
  samples_ = is_sampled(options_.sampled, options_.plans, step) && is_active();
  if (samples_) {
    pipeline_.begin_sample();
    reducer_->begin_sample();
  }
}

const PlanFromStep* Compression::in_force() const {
  return in_force_from_ == 0 ? nullptr : &plan_at(options_.plans, in_force_from_);
}

void Compression::add_plan(PlanFromStep plan) {
  SL_CHECK(options_.plans.back().from_step < plan.from_step, "plans go back");
  options_.plans.push_back(std::move(plan));
}

std::optional<StepSamples> Compression::take_samples() {
  if (!std::exchange(samples_, false)) {
    return std::nullopt;
  }
  rest();
  StepSamples samples(in_force()->plan);
  pipeline_.take_samples(samples);
  reducer_->take_samples(samples);
  return samples;
}

void Compression::put_in_force(std::int64_t step) {
  if (options_.plans.empty() || plan_at(options_.plans, step).from_step == in_force_from_) {
    return;
  }
  const PlanFromStep& plan = plan_at(options_.plans, step);
  in_force_from_ = plan.from_step;
  pipeline_.set_plan(plan.plan);
  reducer_->set_plan(plan.plan, options_.seed, options_.pipeline.rehearsed.get());
  std::size_t workspace = pipeline_.workspace_bytes(options_.workers);
  for (CompressedSum* sum : reducer_->compressed_sums()) {
    workspace = std::max(workspace, sum->codec().workspace_bytes(options_.workers));
  }
  stream_ = std::make_unique<Stream>(Stream::Options{.name = "codec",
                                                     .device = options_.workers.device,
                                                     .num_threads = options_.workers.num_threads,
                                                     .workspace_bytes = workspace});
  if (worker_ == nullptr && is_active()) {
    worker_ = std::make_shared<Worker>();
  }
  const CodecStream codecs{.stream = *stream_, .worker = worker_};
  pipeline_.set_stream(codecs);
  reducer_->set_codec_stream(codecs);
}

void Compression::rest() {
  if (worker_ != nullptr) {
    worker_->finish();
  }
}

PipelineCompression* Compression::pipeline() {
  return is_active() ? &pipeline_ : nullptr;
}

void Compression::add_boundary(BoundaryCodec& codec,
                               const std::string& label,
                               std::vector<CompressionState>& list) {
  const auto add = [&](const std::string& name, const Tensor& data) {
    CompressionState& state = list.emplace_back();
    state.name = "residual/" + name;
    state.data = data;
    state.worker = groups_->data_rank();
    state.num_workers = groups_->data->size();
    place_by_rank(state, groups_->tensor_rank(), groups_->tensor->size());
  };
  const std::vector<Codec::Matrices>& residuals = codec.residuals().all();
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const bool each = codec.end().setting.error_feedback == ErrorFeedback::immediate;
    add(each ? fmt::format("{}/{}", label, i) : label, residuals[i].front());
  }
  for (const CodecState& state : codec.codec().state()) {
    add(label + "." + state.name, state.data);
  }
}

void Compression::add_gradients(CompressedSum& sum, std::vector<CompressionState>& list) {
  const std::vector<const Parameter*>& matrices = sum.plan().matrices;
  const bool table = sum.plan().table;
  const std::string site = table ? "residual/embedding/" : "residual/data_gradient/";
  const std::vector<CodecState> states = sum.codec().state();
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Parameter& parameter = *matrices[i];
    const bool cut = parameter.spec.cut != TensorCut::none;
    const bool first_tensor_rank = cut || groups_->tensor_rank() == 0;
    if (!sum.residuals().all().empty()) {
      for (const ShardPart& part : parameter.shard.parts) {
        CompressionState& state = list.emplace_back();
        state.name = site + parameter.spec.name;
        state.data = sum.residuals().of(0)[i];
        state.logical = parameter.spec.shape;
        state.region = part.logical;
        state.place = {.shape = parameter.shard.shape, .region = part.local};
        state.worker = sum.rank();
        state.num_workers = sum.plan().ranks;
        state.saved = first_tensor_rank;
        state.sums = true;
      }
    }
    if (!states.empty()) {
      CompressionState& state = list.emplace_back();
      state.name = site + parameter.spec.name + "." + states[i].name;
      state.data = states[i].data;
      state.saved = first_tensor_rank && sum.rank() == 0;
      place_by_rank(state, cut ? groups_->tensor_rank() : 0, cut ? groups_->tensor->size() : 1);
    }
  }
}

// What is timed belongs to transfers that have ended.
std::vector<CodecTimes> Compression::take_times() {
  std::vector<CodecTimes> times;
  pipeline_.take_times(times);
  for (CompressedSum* sum : reducer_->compressed_sums()) {
    times.push_back(sum->take_times());
  }
  return times;
}

std::vector<CompressionState> Compression::state() {
  rest();
  std::vector<CompressionState> list;
  std::map<std::string, int> numbers;
  for (BoundaryCodec* codec : pipeline_.senders()) {
    const std::string& place = codec->end().place;
    add_boundary(*codec, boundary_label(place, ++numbers[place]), list);
  }
  for (CompressedSum* sum : reducer_->compressed_sums()) {
    add_gradients(*sum, list);
  }
  return list;
}

void Compression::keep_state() {
  kept_.clear();
  for (const CompressionState& state : this->state()) {
    const Tensor& data = state.data;
    kept_.push_back(
        make_buffer("state of a codec", data.dtype(), data.shape(), backing_of(data.device())));
    cast(*stream_, data, kept_.back().view(data.dtype(), data.shape()));
  }
  if (stream_ != nullptr) {
    stream_->synchronize();
  }
}

void Compression::restore_state() {
  const std::vector<CompressionState> states = state();
  SL_CHECK_EQ(states.size(), kept_.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    const Tensor& data = states[i].data;
    cast(*stream_, kept_[i].view(data.dtype(), data.shape()), data);
  }
  if (stream_ != nullptr) {
    stream_->synchronize();
  }
}

}  // namespace slackline
