#include "parallel/channel/channels.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

// What belongs to one tensor rank alone: its slice of an array with a leading dimension of ranks.
void place_by_rank(ChannelState& state, int rank, int size) {
  const Shape& shape = state.data.shape();
  state.logical = Shape{size, shape[0], shape[1]};
  state.region = {.start = {rank, 0, 0}, .shape = Shape{1, shape[0], shape[1]}};
  state.place = {.shape = state.region.shape, .region = whole_region(state.region.shape)};
}

}  // namespace

Channels::Channels(const Options& options,
                   const Peers& peers,
                   const std::vector<SumChannel::Options>& sums)
    : options_(options),
      peers_(peers),
      boundaries_(options.pipeline, options.codecs),
      routes_{.forward = peers.forward,
              .backward = peers.backward,
              .data_rank = peers.data->rank(),
              .data_size = peers.data->size(),
              .tensor_rank = peers.tensor->rank(),
              .seed = options.seed},
      sums_(sums.begin(), sums.end()),
      errors_(options.errors) {
  if (!options_.plans.empty()) {
    put_in_force(1);
  }
}

void Channels::stop() {
  if (worker_ != nullptr) {
    worker_->stop();
  }
}

void Channels::begin_step(std::int64_t step) {
  step_ = static_cast<std::uint64_t>(step);
  rest();
  put_in_force(step);
  samples_ = is_sampled(options_.sampled, options_.plans, step) && compresses();
  if (samples_) {
    boundaries_.begin_sample();
    for (SumChannel& sum : sums_) {
      sum.begin_sample();
    }
  }
}

void Channels::begin_sum(std::size_t sum) {
  sums_[sum].begin(codec_stream_, {.seed = options_.seed, .step = step_}, keeping_);
}

const PlanFromStep* Channels::in_force() const {
  return in_force_from_ == 0 ? nullptr : &plan_at(options_.plans, in_force_from_);
}

void Channels::add_plan(PlanFromStep plan) {
  SL_CHECK(options_.plans.back().from_step < plan.from_step, "plans go back");
  options_.plans.push_back(std::move(plan));
}

std::optional<StepSamples> Channels::take_samples() {
  if (!std::exchange(samples_, false)) {
    return std::nullopt;
  }
  rest();
  StepSamples samples(in_force()->plan);
  boundaries_.take_samples(samples);
  for (SumChannel& sum : sums_) {
    sum.take_samples(samples);
  }
  return samples;
}

void Channels::put_in_force(std::int64_t step) {
  if (options_.plans.empty() || plan_at(options_.plans, step).from_step == in_force_from_) {
    return;
  }
  const PlanFromStep& plan = plan_at(options_.plans, step);
  in_force_from_ = plan.from_step;
  boundaries_.set_plan(plan.plan);
  std::size_t workspace = boundaries_.workspace_bytes(options_.workers);
  for (SumChannel& sum : sums_) {
    sum.obey(plan.plan, *options_.codecs);
    for (CompressedSum& coded : sum.coded()) {
      workspace = std::max(workspace, coded.codec().workspace_bytes(options_.workers));
    }
  }
  stream_ = std::make_unique<Stream>(Stream::Options{.name = "codec",
                                                     .device = options_.workers.device,
                                                     .num_threads = options_.workers.num_threads,
                                                     .workspace_bytes = workspace});
  if (worker_ == nullptr && compresses()) {
    worker_ = std::make_shared<Worker>();
  }
  codec_stream_.emplace(CodecStream{.stream = *stream_, .worker = worker_});
  boundaries_.set_stream(*codec_stream_);
  routes_.codecs = compresses() ? &boundaries_ : nullptr;
}

std::vector<CompressedSum*> Channels::coded_sums() {
  std::vector<CompressedSum*> list;
  for (SumChannel& sum : sums_) {
    for (CompressedSum& coded : sum.coded()) {
      list.push_back(&coded);
    }
  }
  return list;
}

void Channels::rest() {
  if (worker_ != nullptr) {
    worker_->finish();
  }
}

void Channels::add_boundary(BoundaryCodec& codec,
                            const std::string& label,
                            std::vector<ChannelState>& list) {
  const auto add = [&](const std::string& name, const Tensor& data) {
    ChannelState& state = list.emplace_back();
    state.name = "residual/" + name;
    state.data = data;
    state.worker = peers_.data->rank();
    state.num_workers = peers_.data->size();
    place_by_rank(state, peers_.tensor->rank(), peers_.tensor->size());
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

void Channels::add_gradients(CompressedSum& sum, std::vector<ChannelState>& list) {
  const std::vector<const Parameter*>& matrices = sum.plan().matrices;
  const bool table = sum.plan().table;
  const std::string site = table ? "residual/embedding/" : "residual/data_gradient/";
  const std::vector<CodecState> states = sum.codec().state();
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Parameter& parameter = *matrices[i];
    const bool cut = parameter.spec.cut != TensorCut::none;
    const bool first_tensor_rank = cut || peers_.tensor->rank() == 0;
    if (!sum.residuals().all().empty()) {
      for (const ShardPart& part : parameter.shard.parts) {
        ChannelState& state = list.emplace_back();
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
      ChannelState& state = list.emplace_back();
      state.name = site + parameter.spec.name + "." + states[i].name;
      state.data = states[i].data;
      state.saved = first_tensor_rank && sum.rank() == 0;
      place_by_rank(state, cut ? peers_.tensor->rank() : 0, cut ? peers_.tensor->size() : 1);
    }
  }
}

// What is timed belongs to transfers that have ended.
std::vector<CodecTimes> Channels::take_times() {
  std::vector<CodecTimes> times;
  boundaries_.take_times(times);
  for (CompressedSum* sum : coded_sums()) {
    times.push_back(sum->take_times());
  }
  return times;
}

std::vector<ChannelState> Channels::state() {
  rest();
  std::vector<ChannelState> list;
  std::map<std::string, int> numbers;
  for (BoundaryCodec* codec : boundaries_.senders()) {
    const std::string& place = codec->end().place;
    add_boundary(*codec, boundary_label(place, ++numbers[place]), list);
  }
  for (CompressedSum* sum : coded_sums()) {
    add_gradients(*sum, list);
  }
  return list;
}

void Channels::keep_state() {
  kept_.clear();
  for (const ChannelState& state : this->state()) {
    const Tensor& data = state.data;
    kept_.push_back(
        make_buffer("state of a codec", data.dtype(), data.shape(), backing_of(data.device())));
    cast(*stream_, data, kept_.back().view(data.dtype(), data.shape()));
  }
  if (stream_ != nullptr) {
    stream_->synchronize();
  }
}

void Channels::restore_state() {
  const std::vector<ChannelState> states = state();
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
