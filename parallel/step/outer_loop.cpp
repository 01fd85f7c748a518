#include "parallel/step/outer_loop.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/error.h"

namespace slackline {

namespace {

// Steps of the first rounds where the run chooses: it does not know yet what they take.
constexpr std::int64_t kFirstPeriod = 4;

double sum_of(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

}  // namespace

OuterLoop::OuterLoop(const Options& options, MeshModel& model)
    : config_(options.config),
      rate_(options.rate),
      model_(&model),
      groups_(&model.groups()),
      memory_(
          model,
          config_.fragments,
          config_.eager || config_.mix > 0.0 ? OuterMemory::Leads::yes : OuterMemory::Leads::no),
      rounds_{.period = config_.period.value_or(kFirstPeriod) / config_.fragments,
              .by_choice = !config_.period} {
  SL_CHECK(groups_->outer != nullptr && config_.is_on(), "outer rounds without workers");
  for (int fragment = 0; fragment < config_.fragments; ++fragment) {
    channels_.push_back(std::make_unique<OuterChannel>(
        OuterChannel::Options{.differences = memory_.differences(),
                              .shares = memory_.shares_of(fragment),
                              .pieces = &model.pieces(),
                              .group = groups_->outer.get(),
                              .codec = options.codec,
                              .plain_steps = options.plain_steps,
                              .codecs = model.channel_codecs(),
                              .workers = {model.options().num_threads, model.stream().device()},
                              .seed = model.options().seed}));
  }
  if (options.codec) {
    run_codecs({model.options().num_threads, model.stream().device()});
  }
  if (measures_moves()) {
    moved_squares_.assign(memory_.elements().size(), 0.0);
  }
  round_began_ = groups_->world->now();
}

// Fragments travel in turn, so one stream is enough for all of them.
void OuterLoop::run_codecs(const Workers& workers) {
  std::size_t workspace = 0;
  for (const std::unique_ptr<OuterChannel>& channel : channels_) {
    workspace = std::max(workspace, channel->codec_workspace());
  }
  codec_stream_ = std::make_unique<Stream>(Stream::Options{.name = "codec of rounds",
                                                           .device = workers.device,
                                                           .num_threads = workers.num_threads,
                                                           .workspace_bytes = workspace});
  codec_worker_ = std::make_shared<Worker>();
  for (const std::unique_ptr<OuterChannel>& channel : channels_) {
    channel->run_codecs_on({.stream = *codec_stream_, .worker = codec_worker_});
  }
}

OuterLoop::~OuterLoop() {
  try {
    for (const std::unique_ptr<OuterChannel>& channel : channels_) {
      channel->wait();
    }
  } catch (const std::exception&) {  // what failed is on its way to whoever called
  }
  if (codec_worker_ != nullptr) {
    codec_worker_->stop();
  }
}

void OuterLoop::restart(std::int64_t step) {
  memory_.restart();
  rounds_.restart(step);
}

void OuterLoop::send(int fragment, std::int64_t step) {
  travels_ = fragment;
  channels_[static_cast<std::size_t>(fragment)]->begin(model_->stream(), step);
  sent_at_ = groups_->world->now();
  round_seconds_ = 0.0;
}

void OuterLoop::look() {
  const OuterChannel& channel = *channels_[static_cast<std::size_t>(travels_)];
  if (channel.is_under_way() && channel.done()) {
    note_arrival();
  }
}

void OuterLoop::note_arrival() {
  if (round_seconds_ == 0.0) {
    round_seconds_ = groups_->world->now() - sent_at_;
  }
}

void OuterLoop::finish_round() {
  OuterChannel& channel = *channels_[static_cast<std::size_t>(travels_)];
  if (!channel.is_under_way()) {
    return;
  }
  channel.finish(model_->stream());
  has_arrived_ = true;
  arrived_squares_ = sum_of(memory_.squares_of_differences(travels_));
  note_arrival();  // a device may have had to compute the squares to know
}

void OuterLoop::settle() {
  const double waits_from = groups_->world->now();
  finish_round();
  round_began_ += groups_->world->now() - waits_from;
}

// docs/outer.md, "The penalty": how far the anchor has moved since the late difference was made, in
// lengths that a round can go.
std::vector<double> OuterLoop::penalties() const {
  const std::vector<double>& elements_of = memory_.elements();
  std::vector<double> divisors(elements_of.size(), 1.0);
  if (config_.penalty == OuterPenalty::constant) {
    divisors.assign(elements_of.size(), config_.penalty_value);
  }
  const auto steps = static_cast<double>(rounds_.last_end - rounds_.before);
  const double reach = steps * rate_(rounds_.before + 1);
  if (!config_.is_late() || reach == 0.0) {
    return divisors;
  }
  const auto gap = [&](double squares, double elements) {
    return elements == 0.0 ? 1.0 : 1.0 + std::sqrt(squares / elements) / reach;
  };
  if (config_.penalty == OuterPenalty::gap) {
    divisors.assign(elements_of.size(), gap(sum_of(moved_squares_), sum_of(elements_of)));
  } else if (config_.penalty == OuterPenalty::gap_per_tensor) {
    std::ranges::transform(moved_squares_, elements_of, divisors.begin(), gap);
  }
  return divisors;
}

void OuterLoop::limit_momentum(const OuterStep& move, const std::vector<double>& divisors) {
  memory_.make_momentum(move, divisors);
  double sum = sum_of(memory_.squares_of_momentum());
  groups_->world->all_reduce(Tensor(std::span(&sum, 1)), {.what = "norm of the outer momentum"})
      .wait();
  // How ranks hold tensors shows in the last bits of a sum of doubles. Rounding to float drops
  // them.
  const double norm = static_cast<float>(std::sqrt(sum));
  if (norm > config_.clip) {
    memory_.scale_momentum(config_.clip / norm);
  }
}

OuterStep OuterLoop::step_of(std::int64_t step) const {
  OuterStep move{.lr = config_.lr,
                 .momentum = config_.momentum,
                 .scale = 1.0 / groups_->num_workers(),
                 .nesterov = config_.nesterov};
  if (config_.method == OuterMethod::slowmo) {  // its momentum is of steps, in units of their rate
    const double rate = rate_(step);
    move.scale = rate > 0.0 ? move.scale / rate : 0.0;
    move.lr *= rate;
  }
  return move;
}

void OuterLoop::move_anchor(std::int64_t step, Sends sends, double mix) {
  has_arrived_ = false;
  if (model_->rehearses()) {
    return;
  }
  OuterStep move = step_of(step);
  move.sends = sends == Sends::yes;
  const std::vector<double> divisors = penalties();
  largest_penalty_ = *std::ranges::max_element(divisors);
  if (config_.clip_kind == OuterClip::element) {
    move.clip = config_.clip;
  } else if (config_.clip_kind == OuterClip::norm) {
    limit_momentum(move, divisors);
    move.momentum = 1.0;
    move.scale = 0.0;
  }
  memory_.move_anchor(travels_, move, divisors, mix);
  if (measures_moves()) {
    moved_squares_ = memory_.squares_of_momentum();
    for (double& squares : moved_squares_) {
      squares *= config_.lr * config_.lr;
    }
  }
}

// One sum over all ranks: facts of each worker in places of their own, then what all workers have
// alike, divided by their number, then seconds of each rank.
RoundEnd OuterLoop::agree(const RoundFacts& own, const std::vector<int>& sent, bool last) {
  const auto workers = static_cast<std::size_t>(groups_->num_workers());
  const auto worker = static_cast<std::size_t>(groups_->worker_index());
  const auto ranks = static_cast<std::size_t>(groups_->everyone->size());
  const bool speaks = groups_->world->rank() == 0;  // for its worker
  const std::size_t stop = 3 * workers;
  const std::size_t arrived = stop + 1;
  const std::size_t moved = arrived + 1;
  const std::size_t seconds = moved + moved_squares_.size();
  std::vector<double> numbers(seconds + 2 * ranks, 0.0);
  numbers[worker] = speaks ? own.loss : 0.0;
  numbers[workers + worker] = own.failed && speaks ? 1.0 : 0.0;
  for (const int fragment : sent) {
    numbers[2 * workers + worker] += sum_of(memory_.squares_of_differences(fragment));
  }
  numbers[stop] = own.stop ? 1.0 : 0.0;
  numbers[arrived] = arrived_squares_;
  std::ranges::copy(moved_squares_, numbers.begin() + static_cast<std::ptrdiff_t>(moved));
  const auto rank = static_cast<std::size_t>(groups_->everyone->rank());
  const double now = groups_->world->now();
  numbers[seconds + rank] = round_seconds_;
  numbers[seconds + ranks + rank] = (now - round_began_) / static_cast<double>(rounds_.period);
  groups_->everyone->all_reduce(Tensor(std::span(numbers)), {.what = "end of an outer round"})
      .wait();

  RoundEnd end{.losses = {numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(workers)},
               .stop = numbers[stop] > 0.0,
               .penalty = largest_penalty_};
  double squares = 0.0;
  for (std::size_t i = 0; i < workers; ++i) {
    const double of_worker = numbers[2 * workers + i];
    squares += of_worker;
    if (numbers[workers + i] > 0.0) {
      end.failed.push_back(static_cast<int>(i));
    }
    if (!std::isfinite(of_worker)) {
      end.not_finite.push_back(static_cast<int>(i));
    }
  }
  // The mean of squares less the square of the mean.
  const auto count = static_cast<double>(workers);
  const double elements = std::max(1.0, memory_.elements_of(travels_));
  const double spread = sent_squares_ / count - numbers[arrived] / count / (count * count);
  end.distance = std::sqrt(std::max(0.0, spread) / elements);
  sent_squares_ = end.not_finite.empty() ? squares : 0.0;
  for (std::size_t i = 0; i < moved_squares_.size(); ++i) {
    moved_squares_[i] = static_cast<float>(numbers[moved + i] / count);
  }
  if (rounds_.by_choice && !last) {
    const std::span<const double> times = std::span(numbers).subspan(seconds);
    choose_period(times.first(ranks), *std::ranges::max_element(times.last(ranks)));
  }
  end.period = rounds_.period;
  return end;
}

void OuterLoop::choose_period(std::span<const double> round_seconds, double step_seconds) {
  const double slowest = *std::ranges::max_element(round_seconds);
  if (slowest > 0.0) {
    rounds_.period = chosen_period(slowest, step_seconds, rounds_.period);
  }
}

RoundEnd OuterLoop::end_round(std::int64_t step, const RoundFacts& own, bool last) {
  model_->finish_gather();
  const double waits_from = groups_->world->now();
  finish_round();
  round_began_ += groups_->world->now() - waits_from;  // a step is as long as it computes
  RoundEnd end = config_.has_fragments() ? end_round_of_fragments(step, own, last)
                                         : end_round_of_all(step, own, last);
  publish();
  round_began_ = groups_->world->now();
  return end;
}

RoundEnd OuterLoop::end_round_of_all(std::int64_t step, const RoundFacts& own, bool last) {
  if (config_.is_late() && has_arrived_) {
    move_anchor(rounds_.last_end, Sends::yes);
    memory_.add_leads_to_differences(0);
  } else {
    memory_.take_differences(0);
    std::ranges::fill(moved_squares_, 0.0);  // the anchor has stayed
  }
  RoundEnd end = agree(own, {0}, last);
  rounds_.end(step);
  const bool is_sent = end.not_finite.empty() && end.failed.empty();
  has_leads_ = config_.eager && is_sent && !last;
  memory_.take_leads(has_leads_ ? config_.lr / groups_->num_workers() : 0.0);
  if (is_sent) {
    send(0, step);
  }
  if (last || !config_.is_late()) {
    finish_round();
  }
  if (has_arrived_) {
    move_anchor(step, Sends::no);
  }
  memory_.begin_round(0);
  return end;
}

// A fragment that has arrived moves its anchor and is mixed into weights that have gone on; then
// the next one is sent. At the run's end all are, and anchors are what is left.
RoundEnd OuterLoop::end_round_of_fragments(std::int64_t step, const RoundFacts& own, bool last) {
  if (has_arrived_) {
    move_anchor(rounds_.last_end, Sends::no, config_.mix);
  }
  const std::vector<int> sent = due_fragments(step, rounds_.period, config_.fragments, last);
  for (const int fragment : sent) {
    memory_.take_differences(fragment);
  }
  RoundEnd end = agree(own, sent, last);
  rounds_.end(step);
  for (const int fragment : sent) {
    if (end.not_finite.empty() && end.failed.empty()) {
      send(fragment, step);
    } else {
      memory_.begin_round(fragment);
    }
  }
  if (last) {
    for (const int fragment : sent) {
      travels_ = fragment;
      finish_round();
      if (has_arrived_) {
        move_anchor(step, Sends::no);
      }
    }
  }
  return end;
}

double OuterLoop::mean_over_workers(double number) {
  double sum = groups_->world->rank() == 0 ? number : 0.0;
  groups_->everyone->all_reduce(Tensor(std::span(&sum, 1)), {.what = "mean over workers"}).wait();
  return sum / groups_->num_workers();
}

void OuterLoop::exchange_anchor() {
  model_->finish_gather();
  // The time between both calls is no step of the round.
  const double now = groups_->world->now();
  round_began_ += anchor_in_use_ ? now - exchanged_at_ : 0.0;
  exchanged_at_ = now;
  anchor_in_use_ = !anchor_in_use_;
  memory_.exchange_anchor();
  publish();
}

// Data ranks that update the same elements have moved their parts of them.
void OuterLoop::publish() {
  if (!model_->rehearses()) {
    std::vector<Transfer> gathers;
    for (std::size_t i = 0; i < model_->pieces().size(); ++i) {
      const OptimizerPiece& piece = model_->pieces()[i];
      if (piece.twins > 1 && piece.parameter->spec.trained) {
        gathers.push_back(
            groups_->data->all_gather(model_->optimizer().tensors()[i].weight.reshaped(
                                          {static_cast<std::int64_t>(piece.range.count())}),
                                      {.what = "weights after an outer round"}));
      }
    }
    for (Transfer& gather : gathers) {
      gather.wait();
    }
  }
  model_->begin_publishing();
}

std::vector<OuterLoop::State> OuterLoop::state() {
  std::vector<State> views = all_state();
  for (State& view : views) {
    if (!has_arrived_ || view.share.fragment != travels_) {
      view.difference = {};
    }
  }
  return views;
}

std::vector<OuterLoop::State> OuterLoop::all_state() {
  std::vector<State> views;
  views.reserve(memory_.shares().size());
  for (const OuterShare& share : memory_.shares()) {
    views.push_back({.piece = &model_->pieces()[share.piece],
                     .share = share,
                     .anchor = memory_.anchor(share),
                     .momentum = memory_.momentum(share),
                     .difference = memory_.difference(share),
                     .lead = config_.eager ? memory_.lead(share) : Tensor()});
  }
  return views;
}

std::string OuterLoop::state_text() const {
  const OuterStep owed = step_of(rounds_.last_end);
  const std::vector<double> divisors = penalties();
  return nlohmann::ordered_json{{"workers", groups_->num_workers()},
                                {"last_end", rounds_.last_end},
                                {"before", rounds_.before},
                                {"period", rounds_.period},
                                {"round_has_arrived", has_arrived_},
                                {"owed_step",
                                 {{"lr", owed.lr},
                                  {"momentum", owed.momentum},
                                  {"scale", owed.scale / *std::ranges::max_element(divisors)},
                                  {"nesterov", owed.nesterov}}},
                                {"eager", has_leads_},
                                {"fragments", config_.fragments},
                                {"fragment", travels_},
                                {"penalty", largest_penalty_},
                                {"moved_squares", moved_squares_},
                                {"sent_squares", sent_squares_}}
      .dump();
}

void OuterLoop::load(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  has_leads_ = has_leads(text);
  if (has_leads_ && !config_.eager) {
    throw ConfigError("outer.eager: must stay true: the round under way began ahead of its anchor");
  }
  const bool has_arrived = state.at("round_has_arrived").get<bool>();
  const int fragments = state.value("fragments", 1);
  if (has_arrived && fragments != config_.fragments) {
    throw ConfigError(fmt::format(
        "outer.fragments: must stay {}: one of so many has arrived that the anchor lacks; got {}",
        fragments,
        config_.fragments));
  }
  if (has_arrived && fragments == 1 && !config_.is_late()) {
    throw ConfigError("outer.delay: must stay 1: a round has arrived that the anchor lacks");
  }
  rounds_.last_end = state.at("last_end").get<std::int64_t>();
  rounds_.before = state.at("before").get<std::int64_t>();
  if (rounds_.by_choice) {
    rounds_.period = state.at("period").get<std::int64_t>();
  }
  has_arrived_ = has_arrived;
  travels_ = has_arrived ? state.value("fragment", 0) : 0;
  largest_penalty_ = state.at("penalty").get<double>();
  const auto moved = state.at("moved_squares").get<std::vector<double>>();
  if (moved.size() == moved_squares_.size()) {  // else the penalty is another one now
    moved_squares_ = moved;
  }
  sent_squares_ = state.at("sent_squares").get<double>();
  arrived_squares_ = has_arrived_ ? sum_of(memory_.squares_of_differences(travels_)) : 0.0;
}

bool OuterLoop::has_leads(const std::string& text) {
  return nlohmann::json::parse(text).value("eager", false);
}

std::optional<OuterStep> OuterLoop::owed_step(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  if (!state.at("round_has_arrived").get<bool>()) {
    return std::nullopt;
  }
  const nlohmann::json& step = state.at("owed_step");
  return OuterStep{.lr = step.at("lr").get<double>(),
                   .momentum = step.at("momentum").get<double>(),
                   .scale = step.at("scale").get<double>(),
                   .nesterov = step.at("nesterov").get<bool>()};
}

void OuterLoop::make_owed_step(const OuterStep& step,
                               const std::function<bool(const std::string&)>& owes) {
  for (const OuterShare& share : memory_.shares()) {
    if (owes(model_->pieces()[share.piece].parameter->spec.name)) {
      memory_.move_anchor_at(share, step);
    }
  }
  publish();
  model_->finish_gather();
}

std::vector<ChannelState> OuterLoop::codec_state() const {
  const StateRanks ranks{.tensor = groups_->tensor_rank(), .tensor_size = groups_->tensor->size()};
  std::vector<ChannelState> list;
  for (const std::unique_ptr<OuterChannel>& channel : channels_) {
    for (ChannelState& state : channel->state(ranks)) {
      list.push_back(std::move(state));
    }
  }
  return list;
}

int OuterLoop::workers_of(const std::string& text) {
  return text.empty() ? 0 : nlohmann::json::parse(text).value("workers", 0);
}

}  // namespace slackline
