#include "parallel/channel/channels.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

// More than most workers have ranks times micro-batches, and small enough for the 32 bits that
// random numbers have for it. So workers round gradients independently of each other, and the first
// as a run without workers does.
constexpr std::uint64_t kSendersOfWorker = std::uint64_t{1} << 20U;

}  // namespace

Channels::Channels(const Options& options,
                   const ChannelPeers& peers,
                   const std::vector<SumChannel::Options>& sums,
                   const std::vector<GatherChannel::Options>& gathers)
    : options_(options),
      boundaries_(options.boundaries),
      routes_{.peers = peers,
              .tensor_rank = peers.tensor->rank(),
              .share = options.boundaries.share(),
              .seed = options.seed},
      sums_(sums.begin(), sums.end()),
      gathers_(gathers.begin(), gathers.end()),
      tensor_(*peers.tensor, options.sequence_parallel, routes_) {
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
  rest();
  put_in_force(step);
  samples_ = is_sampled(options_.sampled, options_.plans, step) && compresses();
  if (samples_) {
    for (Channel* channel : all()) {
      channel->begin_sample();
    }
  }
}

void Channels::begin_sum(std::size_t sum) {
  const ChannelPeers& peers = routes_.peers;
  const auto worker = static_cast<std::uint64_t>(peers.replica / peers.data->size());
  sums_[sum].begin({.seed = options_.seed, .step = step_, .sender = worker * kSendersOfWorker},
                   keeping_);
}

void Channels::begin_gather(std::size_t gather) {
  gathers_[gather].begin({.seed = options_.seed, .step = step_});
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
  for (Channel* channel : all()) {
    channel->take_samples(samples);
  }
  return samples;
}

void Channels::put_in_force(std::int64_t step) {
  step_ = static_cast<std::uint64_t>(step);
  if (!begins_plan(step)) {
    return;
  }
  const PlanFromStep& plan = plan_at(options_.plans, step);
  in_force_from_ = plan.from_step;
  std::size_t workspace = 0;
  for (Channel* channel : all()) {
    channel->obey(plan.plan, options_.codecs);
    workspace = std::max(workspace, channel->codec_workspace(options_.workers));
  }
  stream_ = std::make_unique<Stream>(options_.workers, workspace, "codec");
  if (worker_ == nullptr && compresses()) {
    worker_ = std::make_shared<Worker>();
  }
  for (Channel* channel : all()) {
    channel->run_codecs_on({.stream = *stream_, .worker = worker_});
  }
  routes_.codecs = compresses() ? &boundaries_ : nullptr;
}

std::vector<Channel*> Channels::all() {
  std::vector<Channel*> list{&boundaries_};
  for (SumChannel& sum : sums_) {
    list.push_back(&sum);
  }
  for (GatherChannel& gather : gathers_) {
    list.push_back(&gather);
  }
  list.push_back(&tensor_);
  return list;
}

void Channels::rest() {
  if (worker_ != nullptr) {
    worker_->finish();
  }
}

std::vector<CodecTimes> Channels::take_times() {
  std::vector<CodecTimes> times;
  for (Channel* channel : all()) {
    channel->take_times(times);
  }
  return times;
}

std::vector<ChannelState> Channels::state() {
  rest();
  const StateRanks ranks{.tensor = routes_.tensor_rank,
                         .tensor_size = routes_.peers.tensor->size(),
                         .data = routes_.peers.data->rank(),
                         .data_size = routes_.peers.data->size()};
  std::vector<ChannelState> list;
  for (Channel* channel : all()) {
    channel->add_state(ranks, list);
  }
  return list;
}

void Channels::keep_state() {
  const std::vector<ChannelState> states = state();
  const auto fits = [](const ChannelState& state, const Buffer& kept) {
    return state.data.bytes() == kept.bytes();
  };
  if (!std::ranges::equal(states, kept_, fits)) {  // made anew where a plan has come
    kept_.clear();
    for (const ChannelState& state : states) {
      const Tensor& data = state.data;
      kept_.push_back(
          make_buffer("state of a codec", data.dtype(), data.shape(), backing_of(data.device())));
    }
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    const Tensor& data = states[i].data;
    cast(*stream_, data, kept_[i].view(data.dtype(), data.shape()));
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
