#include "parallel/step/outer_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/update/outer_step.h"
#include "core/kernels/update/sum_of_squares.h"
#include "model/parameter_table.h"

namespace slackline {

namespace {

// Steps of the first rounds where the run chooses: it does not know yet what they take.
constexpr std::int64_t kFirstPeriod = 4;

Buffer flat_buffer(const char* name, std::size_t elements, const MeshModel& model) {
  const Device device = model.job().device;
  const Backing backing = model.rehearses() ? Backing::untouched : backing_of(device);
  return make_buffer(name, DType::f32, {static_cast<std::int64_t>(elements)}, backing);
}

Tensor row_of(const Tensor& tensor) {
  return tensor.reshaped({static_cast<std::int64_t>(tensor.num_elements())});
}

Tensor part_of(const Tensor& row, const Slice& slice) {
  return row.rows(static_cast<std::int64_t>(slice.begin), static_cast<std::int64_t>(slice.end));
}

Tensor all_of(const Buffer& buffer) {
  return buffer.view(DType::f32, {static_cast<std::int64_t>(buffer.bytes() / sizeof(float))});
}

}  // namespace

OuterLoop::OuterLoop(const OuterConfig& config,
                     std::function<double(std::int64_t step)> rate,
                     MeshModel& model)
    : config_(config),
      rate_(std::move(rate)),
      model_(&model),
      groups_(&model.groups()),
      shares_(outer_shares(model.pieces())),
      anchor_(flat_buffer("outer anchor", elements_of(shares_), model)),
      momentum_(flat_buffer("outer momentum", elements_of(shares_), model)),
      difference_(flat_buffer("outer difference", elements_of(shares_), model)),
      rounds_{.period = config.period.value_or(kFirstPeriod), .by_choice = !config.period} {
  SL_CHECK(groups_->outer != nullptr && config.is_on(), "outer rounds without workers");
  const std::vector<ParameterSpec> table = parameter_table(model.job().model);
  for (const ParameterSpec& spec : table) {
    elements_.push_back(spec.trained ? static_cast<double>(spec.shape.num_elements()) : 0.0);
  }
  for (const OuterShare& share : shares_) {
    const std::string& name = model.pieces()[share.piece].parameter->spec.name;
    parameters_.push_back(static_cast<std::size_t>(
        std::ranges::find(table, name, &ParameterSpec::name) - table.begin()));
  }
  if (measures_moves()) {
    moved_squares_.assign(elements_.size(), 0.0);
  }
  round_began_ = groups_->world->now();
}

Tensor OuterLoop::of_share(const Buffer& buffer, const OuterShare& share) const {
  return part_of(all_of(buffer), {share.first, share.first + share.range.count()});
}

Tensor OuterLoop::weight_of(const OuterShare& share) const {
  const std::size_t begin = model_->pieces()[share.piece].range.begin;
  const Tensor weight = row_of(model_->optimizer().tensors()[share.piece].weight);
  return part_of(weight, {share.range.begin - begin, share.range.end - begin});
}

void OuterLoop::restart() {
  if (model_->rehearses()) {
    return;
  }
  for (const OuterShare& share : shares_) {
    cast(model_->stream(), weight_of(share), of_share(anchor_, share));
  }
  fill_zero(model_->stream(), all_of(momentum_));
  fill_zero(model_->stream(), all_of(difference_));
}

void OuterLoop::take_differences() {
  if (model_->rehearses()) {
    return;
  }
  for (const OuterShare& share : shares_) {
    const Tensor difference = of_share(difference_, share);
    scale(model_->stream(), weight_of(share), -1.0F, difference);
    add(model_->stream(), of_share(anchor_, share), difference, difference);
  }
}

void OuterLoop::take_anchor() {
  if (model_->rehearses()) {
    return;
  }
  for (const OuterShare& share : shares_) {
    cast(model_->stream(), of_share(anchor_, share), weight_of(share));
  }
}

void OuterLoop::send() {
  const Tensor all = all_of(difference_);
  for (const Slice& slice : outer_transfers(elements_of(shares_))) {
    transfers_.push_back(groups_->outer->all_reduce(part_of(all, slice), {.what = "outer round"}));
  }
  sent_at_ = groups_->world->now();
  round_seconds_ = 0.0;
}

void OuterLoop::look() {
  const bool arrived =
      std::ranges::all_of(transfers_, [](const Transfer& transfer) { return transfer.done(); });
  if (!transfers_.empty() && arrived && round_seconds_ == 0.0) {
    round_seconds_ = groups_->world->now() - sent_at_;
  }
}

void OuterLoop::finish_transfers() {
  if (transfers_.empty()) {
    return;
  }
  for (Transfer& transfer : transfers_) {
    transfer.wait();
  }
  look();
  transfers_.clear();
  has_arrived_ = true;
  const std::vector<double> squares = squares_of(difference_);
  arrived_squares_ = std::accumulate(squares.begin(), squares.end(), 0.0);
}

void OuterLoop::settle() {
  finish_transfers();
}

std::vector<double> OuterLoop::squares_of(const Buffer& buffer) {
  std::vector<double> squares(elements_.size(), 0.0);
  if (model_->rehearses()) {
    return squares;
  }
  std::vector<Tensor> tensors;
  tensors.reserve(shares_.size());
  for (const OuterShare& share : shares_) {
    tensors.push_back(of_share(buffer, share));
  }
  const std::vector<double> sums = sums_of_squares(model_->stream(), tensors);
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    squares[parameters_[i]] += shares_[i].counted ? sums[i] : 0.0;
  }
  return squares;
}

// docs/outer.md, "The penalty": how far the anchor has moved since the late difference was made, in
// lengths that a round can go.
std::vector<double> OuterLoop::penalties() const {
  std::vector<double> divisors(elements_.size(), 1.0);
  if (config_.penalty == OuterPenalty::constant) {
    divisors.assign(elements_.size(), config_.penalty_value);
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
    const double squares = std::accumulate(moved_squares_.begin(), moved_squares_.end(), 0.0);
    const double elements = std::accumulate(elements_.begin(), elements_.end(), 0.0);
    divisors.assign(elements_.size(), gap(squares, elements));
  } else if (config_.penalty == OuterPenalty::gap_per_tensor) {
    std::ranges::transform(moved_squares_, elements_, divisors.begin(), gap);
  }
  return divisors;
}

void OuterLoop::limit_momentum(const OuterStep& move, const std::vector<double>& divisors) {
  const StreamView stream = model_->stream();
  const Tensor momentum = all_of(momentum_);
  scale(stream, momentum, static_cast<float>(move.momentum), momentum);
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    const Tensor difference = of_share(difference_, shares_[i]);
    const double factor = move.scale / divisors[parameters_[i]];
    scale(stream, difference, static_cast<float>(factor), difference);
  }
  add(stream, momentum, all_of(difference_), momentum);
  const std::vector<double> squares = squares_of(momentum_);
  double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  groups_->world->all_reduce(Tensor(std::span(&sum, 1)), {.what = "norm of the outer momentum"})
      .wait();
  // How ranks hold tensors shows in the last bits of a sum of doubles. Rounding to float drops
  // them.
  const double norm = static_cast<float>(std::sqrt(sum));
  if (norm > config_.clip) {
    scale(stream, momentum, static_cast<float>(config_.clip / norm), momentum);
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

void OuterLoop::move_anchor(std::int64_t step, Sends sends) {
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
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    OuterStep own = move;
    own.scale /= divisors[parameters_[i]];
    outer_step(model_->stream(),
               {.difference = of_share(difference_, shares_[i]),
                .momentum = of_share(momentum_, shares_[i]),
                .anchor = of_share(anchor_, shares_[i]),
                .weight = weight_of(shares_[i])},
               own);
  }
  has_arrived_ = false;
  if (measures_moves()) {
    moved_squares_ = squares_of(momentum_);
    for (double& squares : moved_squares_) {
      squares *= config_.lr * config_.lr;
    }
  }
}

// One sum over all ranks: facts of each worker in places of their own, then what all workers have
// alike, divided by their number, then seconds of each rank.
RoundEnd OuterLoop::agree(const RoundFacts& own, bool last) {
  const auto workers = static_cast<std::size_t>(groups_->num_workers());
  const auto worker = static_cast<std::size_t>(groups_->worker_index());
  const auto ranks = static_cast<std::size_t>(groups_->everyone->size());
  const bool speaks = groups_->world->rank() == 0;  // for its worker
  const std::size_t stop = 3 * workers;
  const std::size_t arrived = stop + 1;
  const std::size_t moved = arrived + 1;
  const std::size_t seconds = moved + moved_squares_.size();
  std::vector<double> numbers(seconds + 2 * ranks, 0.0);
  const std::vector<double> sent = squares_of(difference_);
  numbers[worker] = speaks ? own.loss : 0.0;
  numbers[workers + worker] = own.failed && speaks ? 1.0 : 0.0;
  numbers[2 * workers + worker] = std::accumulate(sent.begin(), sent.end(), 0.0);
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
  const double elements = std::accumulate(elements_.begin(), elements_.end(), 0.0);
  const double spread = sent_squares_ / count - numbers[arrived] / count / (count * count);
  end.distance = std::sqrt(std::max(0.0, spread) / elements);
  sent_squares_ = squares;
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
  finish_transfers();
  round_began_ += groups_->world->now() - waits_from;  // a step is as long as it computes
  const bool moves_at_once = config_.is_late() && has_arrived_;
  if (moves_at_once) {
    move_anchor(rounds_.last_end, Sends::yes);
  } else {
    take_differences();
  }
  RoundEnd end = agree(own, last);
  rounds_.end(step);
  if (end.not_finite.empty()) {
    send();
  }
  if (last || !config_.is_late()) {
    finish_transfers();
  }
  if (has_arrived_) {
    move_anchor(step, Sends::no);
  } else if (!moves_at_once) {
    take_anchor();
  }
  publish();
  round_began_ = groups_->world->now();
  return end;
}

double OuterLoop::mean_over_workers(double number) {
  double sum = groups_->world->rank() == 0 ? number : 0.0;
  groups_->everyone->all_reduce(Tensor(std::span(&sum, 1)), {.what = "mean over workers"}).wait();
  return sum / groups_->num_workers();
}

void OuterLoop::exchange_anchor() {
  model_->finish_gather();
  for (const OuterShare& share : shares_) {
    exchange(model_->stream(), weight_of(share), of_share(anchor_, share));
  }
  publish();
}

// Data ranks that update the same elements have moved their parts of them.
void OuterLoop::publish() {
  if (!model_->rehearses()) {
    std::vector<Transfer> gathers;
    for (std::size_t i = 0; i < model_->pieces().size(); ++i) {
      const OptimizerPiece& piece = model_->pieces()[i];
      if (piece.twins > 1 && piece.parameter->spec.trained) {
        gathers.push_back(groups_->data->all_gather(row_of(model_->optimizer().tensors()[i].weight),
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
  if (!has_arrived_) {
    for (State& view : views) {
      view.difference = {};
    }
  }
  return views;
}

std::vector<OuterLoop::State> OuterLoop::all_state() {
  std::vector<State> views;
  views.reserve(shares_.size());
  for (const OuterShare& share : shares_) {
    views.push_back({.piece = &model_->pieces()[share.piece],
                     .share = share,
                     .anchor = of_share(anchor_, share),
                     .momentum = of_share(momentum_, share),
                     .difference = of_share(difference_, share)});
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
                                {"penalty", largest_penalty_},
                                {"moved_squares", moved_squares_},
                                {"sent_squares", sent_squares_}}
      .dump();
}

void OuterLoop::load(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  rounds_.last_end = state.at("last_end").get<std::int64_t>();
  rounds_.before = state.at("before").get<std::int64_t>();
  if (rounds_.by_choice) {
    rounds_.period = state.at("period").get<std::int64_t>();
  }
  has_arrived_ = state.at("round_has_arrived").get<bool>();
  largest_penalty_ = state.at("penalty").get<double>();
  const auto moved = state.at("moved_squares").get<std::vector<double>>();
  if (moved.size() == moved_squares_.size()) {  // else the penalty is another one now
    moved_squares_ = moved;
  }
  sent_squares_ = state.at("sent_squares").get<double>();
  const std::vector<double> squares = squares_of(difference_);
  arrived_squares_ = has_arrived_ ? std::accumulate(squares.begin(), squares.end(), 0.0) : 0.0;
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

void OuterLoop::make_owed_step(const OuterStep& step) {
  for (const OuterShare& share : shares_) {
    outer_step(model_->stream(),
               {.difference = of_share(difference_, share),
                .momentum = of_share(momentum_, share),
                .anchor = of_share(anchor_, share),
                .weight = weight_of(share)},
               step);
  }
  fill_zero(model_->stream(), all_of(difference_));
  publish();
  model_->finish_gather();
}

int OuterLoop::workers_of(const std::string& text) {
  return text.empty() ? 0 : nlohmann::json::parse(text).value("workers", 0);
}

}  // namespace slackline
