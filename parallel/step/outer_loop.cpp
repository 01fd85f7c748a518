#include "parallel/step/outer_loop.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "core/check.h"

namespace slackline {

namespace {

// Steps of the first rounds where the run chooses: it does not know yet what they take.
constexpr std::int64_t kFirstPeriod = 4;

// Which part of anchors this rank keeps, where it does not keep all.
std::optional<OuterMemory::Owner> owner_of(const Groups& groups,
                                           const OuterLoop::Options& options) {
  const Communicator* workers = groups.outer.get();
  if (workers == nullptr || workers->size() == 1 ||
      !options.config.updates_apart(options.codec.has_value())) {
    return std::nullopt;
  }
  return OuterMemory::Owner{.worker = workers->rank(), .workers = workers->size()};
}

}  // namespace

OuterLoop::OuterLoop(const Options& options, MeshModel& model)
    : config_(options.config),
      rate_(options.rate),
      model_(&model),
      groups_(&model.groups()),
      memory_(model,
              config_.fragments,
              config_.eager || config_.mix > 0.0 ? OuterMemory::Leads::yes : OuterMemory::Leads::no,
              owner_of(model.groups(), options)),
      reach_(config_.reach, model, memory_),
      rounds_{.period = config_.period.value_or(kFirstPeriod) / config_.fragments,
              .by_choice = !config_.period} {
  SL_CHECK(groups_->outer != nullptr && config_.is_on(), "outer rounds without workers");
  if (owner_of(model.groups(), options)) {
    background_ = std::make_unique<BackgroundRound>(model, memory_, *groups_->outer);
  }
  for (int fragment = 0; background_ == nullptr && fragment < config_.fragments; ++fragment) {
    channels_.push_back(std::make_unique<OuterChannel>(
        OuterChannel::Options{.differences = memory_.differences(),
                              .shares = memory_.shares_of(fragment),
                              .pieces = &model.pieces(),
                              .group = groups_->outer.get(),
                              .codec = options.codec,
                              .plain_steps = options.plain_steps,
                              .codecs = model.codec_maker(),
                              .workers = {model.options().num_threads, model.stream().device()},
                              .seed = model.options().seed}));
  }
  if (options.codec) {
    run_codecs({model.options().num_threads, model.stream().device()});
  }
  if (config_.measures_moves()) {
    moved_squares_.assign(memory_.elements().size(), 0.0);
  }
  round_began_ = met_at_ = groups_->world->now();
}

// Fragments travel in turn, so one stream is enough for all of them.
void OuterLoop::run_codecs(const Workers& workers) {
  std::size_t workspace = 0;
  for (const std::unique_ptr<OuterChannel>& channel : channels_) {
    workspace = std::max(workspace, channel->codec_workspace());
  }
  codec_stream_ = std::make_unique<Stream>(workers, workspace, "codec of rounds");
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
  if (background_ != nullptr) {
    background_->start_at_weights();
  }
  model_->stream().synchronize();  // a checkpoint's weights and rounds may be read into it next
  rounds_.restart(step);
}

RoundTransfer& OuterLoop::transfer() const {
  if (background_ != nullptr) {
    return *background_;
  }
  return *channels_[static_cast<std::size_t>(travels_)];
}

void OuterLoop::send(int fragment, std::int64_t step, OuterChannel::Coding coding) {
  channels_[static_cast<std::size_t>(fragment)]->begin(model_->stream(), step, coding);
  note_sending(fragment, step);
}

void OuterLoop::note_sending(int fragment, std::int64_t step) {
  travels_ = fragment;
  sent_ = {.step = step,
           .fragment = fragment,
           .takes_part = background_ != nullptr ? background_->has_shares()
                                                : !memory_.shares_of(fragment).empty(),
           .sent = groups_->world->now()};
  goes_unseen_ = false;
}

void OuterLoop::look() {
  if (is_under_way() && transfer().done()) {
    note_arrival();
  }
}

void OuterLoop::leave_out(double seconds) {
  round_began_ += seconds;
}

void OuterLoop::note_arrival() {
  if (sent_.arrived == 0.0) {
    sent_.arrived = groups_->world->now();
  }
}

void OuterLoop::finish_round() {
  if (!transfer().is_under_way()) {
    return;
  }
  transfer().finish(model_->stream());
  if (!has_arrived_) {  // else a start alone has travelled
    has_arrived_ = true;
    arrived_squares_ = background_ != nullptr ? background_->squares_of_sum()
                                              : sum_of(memory_.squares_of_differences(travels_));
    note_arrival();  // a device may have had to compute the squares to know
  }
}

void OuterLoop::finish_sent(const std::vector<int>& fragments, std::int64_t step) {
  for (const int fragment : fragments) {
    travels_ = fragment;
    finish_round();
    if (has_arrived_) {
      move_anchor(step, OuterWrites::step);
    }
  }
}

double OuterLoop::wait_for_round() {
  look();  // what has arrived by now is not waited for
  const double waits_from = groups_->world->now();
  finish_round();
  const double waited = groups_->world->now() - waits_from;
  round_began_ += waited;
  if (is_to_come_) {
    sent_.waited += std::max(0.0, sent_.arrived - waits_from);
  }
  return waited;
}

void OuterLoop::settle() {
  // A start may travel once more, whose round has arrived already.
  const bool waits_for_start = has_arrived_ && transfer().is_under_way();
  const double waited = wait_for_round();
  if (is_to_come_ && waits_for_start) {
    sent_.waited += waited;
  }
}

// The first rank has the squares in its text, whoever goes on from that.
void OuterLoop::gather_state() {
  sum_over_all(std::span(&arrived_squares_, 1), "squares of a sum");
  arrived_squares_ = groups_->everyone->rank() == 0 ? arrived_squares_ : 0.0;
  reach_.gather_workers();
}

void OuterLoop::sum_over_all(std::span<double> numbers, const char* what) {
  groups_->everyone
      ->all_reduce(Tensor(numbers),
                   {.what = what, .patience_seconds = groups_->world->now() - met_at_})
      .wait();
  met_at_ = groups_->world->now();
}

// One sum over all ranks: facts of each worker in places of their own, then what all workers have
// alike, divided by their number, then seconds of each rank.
RoundEnd OuterLoop::agree(const RoundFacts& own, double sent_squares, bool last) {
  const auto workers = static_cast<std::size_t>(groups_->num_workers());
  const auto worker = static_cast<std::size_t>(groups_->worker_index());
  const auto ranks = static_cast<std::size_t>(groups_->everyone->size());
  const bool speaks = groups_->world->rank() == 0;  // for its worker
  const std::size_t stop = 3 * workers;
  const std::size_t arrived = stop + 1;
  const std::size_t moved = arrived + 1;
  const std::size_t directions = moved + moved_squares_.size();
  const std::size_t seconds = directions + reach_.round().size();
  std::vector<double> numbers(seconds + 2 * ranks, 0.0);
  numbers[worker] = speaks ? own.loss : 0.0;
  numbers[workers + worker] = own.failed && speaks ? 1.0 : 0.0;
  numbers[2 * workers + worker] = sent_squares;
  numbers[stop] = own.stop ? 1.0 : 0.0;
  numbers[arrived] = arrived_squares_;
  std::ranges::copy(moved_squares_, numbers.begin() + static_cast<std::ptrdiff_t>(moved));
  std::ranges::copy(reach_.round(), numbers.begin() + static_cast<std::ptrdiff_t>(directions));
  const auto rank = static_cast<std::size_t>(groups_->everyone->rank());
  const double now = groups_->world->now();
  numbers[seconds + rank] =
      goes_unseen_ ? std::numeric_limits<double>::infinity() : sent_.seconds();
  numbers[seconds + ranks + rank] = (now - round_began_) / static_cast<double>(rounds_.period);
  sum_over_all(numbers, "end of an outer round");

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
  const double copies = background_ != nullptr ? 1.0 : count;  // of what is kept of the model
  const double elements = std::max(1.0, memory_.elements_of(travels_));
  const double spread = sent_squares_ / count - numbers[arrived] / copies / (count * count);
  end.distance = std::sqrt((spread < 0.0 ? 0.0 : spread) / elements);  // rounding may go below 0
  sent_squares_ = end.not_finite.empty() ? squares : 0.0;
  for (std::size_t i = 0; i < moved_squares_.size(); ++i) {
    moved_squares_[i] = static_cast<float>(numbers[moved + i] / copies);
  }
  reach_.end_round(std::span(numbers).subspan(directions, reach_.round().size()));
  if (rounds_.by_choice && !last) {
    const std::span<const double> times = std::span(numbers).subspan(seconds);
    choose_period(times.first(ranks), *std::ranges::max_element(times.last(ranks)));
  }
  end.period = rounds_.period;
  return end;
}

void OuterLoop::choose_period(std::span<const double> round_seconds, double step_seconds) {
  const double slowest = *std::ranges::max_element(round_seconds);
  if (slowest > 0.0 && std::isfinite(slowest)) {
    rounds_.period = chosen_period(slowest, step_seconds, rounds_.period);
  }
}

RoundEnd OuterLoop::end_round(std::int64_t step, const RoundFacts& own, bool last) {
  ended_ = {.end_began = groups_->world->now()};
  settle();  // a step is as long as it computes
  if (std::exchange(is_to_come_, false)) {
    sent_.needed = ended_.end_began;
    ended_.arrived.push_back(sent_);
  }
  model_->finish_gather();
  clipped_ = 0.0;
  const bool to_mean = last && config_.ending == OuterEnding::mean;
  RoundEnd end = to_mean                  ? end_with_mean(step, own)
                 : background_ != nullptr ? end_round_in_background(step, own, last)
                                          : end_round_of_differences(step, own, last);
  if (config_.clip_kind != OuterClip::none) {
    end.clipped = clipped_;
  }
  publish();
  round_began_ = groups_->world->now();
  note_end(step);
  return end;
}

void OuterLoop::note_end(std::int64_t step) {
  ended_.end_ended = groups_->world->now();
  if (sent_.step != step) {  // the round is left out
    return;
  }
  is_to_come_ = is_under_way();
  if (is_to_come_) {
    ended_.under_way = sent_;
  } else if (!config_.has_fragments()) {
    RoundTravel& own = ended_.arrived.emplace_back(sent_);
    own.needed = own.sent;
    own.waited = own.seconds();
  }
}

// A late round, or a fragment, that has arrived moves its anchor, and the fragment is mixed into
// weights that have gone on. Then what is due is sent. Rounds that are not late are waited for, and
// so is everything at the run's end, when all fragments are due: anchors are what is left.
RoundEnd OuterLoop::end_round_of_differences(std::int64_t step, const RoundFacts& own, bool last) {
  const bool is_whole = !config_.has_fragments();
  const bool has_differences = config_.is_late() && has_arrived_;
  if (has_arrived_) {
    move_anchor(rounds_.last_end,
                config_.is_late() ? OuterWrites::step_and_difference : OuterWrites::step,
                config_.mix);
  } else {
    std::ranges::fill(moved_squares_, 0.0);  // the anchor has stayed
  }
  const std::vector<int> due = due_fragments(step, rounds_.period, config_.fragments, last);
  double squares = 0.0;
  for (const int fragment : due) {
    has_differences ? memory_.add_leads_to_differences(fragment)
                    : memory_.take_differences(fragment);
    squares += sum_of(memory_.squares_of_differences(fragment));
  }
  RoundEnd end = agree(own, squares, last);
  rounds_.end(step);
  const bool is_sent = end.not_finite.empty() && end.failed.empty();
  if (is_whole) {
    has_leads_ = config_.eager && is_sent && !last;
    has_leads_ ? take_leads(step) : memory_.drop_leads();
  }
  if (is_sent) {
    for (const int fragment : due) {
      send(fragment, step);
    }
  }
  if (last || (is_whole && !config_.is_late())) {
    finish_sent(due, step);
  }
  for (const int fragment : due) {
    if (is_whole || !is_sent) {  // weights of a fragment that travels go on
      memory_.begin_round(fragment);
    }
  }
  return end;
}

// Weights change places with the start that has come, and owners make the step that led there.
RoundEnd OuterLoop::end_round_in_background(std::int64_t step, const RoundFacts& own, bool last) {
  background_->exchange();
  if (has_arrived_) {
    move_anchor(rounds_.last_end, OuterWrites::step_and_old_anchor);
  } else {
    memory_.keep_anchor();
    std::ranges::fill(moved_squares_, 0.0);  // it has stayed
  }
  RoundEnd end = agree(own, background_->squares_of_ends(), last);
  rounds_.end(step);
  const bool is_sent = end.not_finite.empty() && end.failed.empty();
  if (is_sent) {
    background_->begin(step_of(step), penalties());
    note_sending(0, step);
  }
  if (is_sent && last) {
    finish_sent({0}, step);
    background_->exchange();
  }
  if (!is_sent || last) {
    background_->start_at_weights();
  }
  return end;
}

// Leaves what late rounds had still to bring, which is in no end point's way, and what codecs owe,
// for a mean is plain. A mean that is not finite is left out, and the anchor stays.
RoundEnd OuterLoop::end_with_mean(std::int64_t step, const RoundFacts& own) {
  has_arrived_ = false;
  has_leads_ = false;
  memory_.drop_leads();
  std::ranges::fill(moved_squares_, 0.0);
  double squares = 0.0;
  if (background_ != nullptr) {
    background_->exchange();
    memory_.keep_anchor();
    squares = background_->squares_of_ends();
  } else {
    memory_.take_differences(0);
    squares = sum_of(memory_.squares_of_differences(0));
  }
  RoundEnd end = agree(own, squares, true);
  rounds_.end(step);
  if (end.not_finite.empty() && end.failed.empty()) {
    if (background_ != nullptr) {
      const std::vector<double> alike(memory_.elements().size(), 1.0);
      background_->begin(OuterMemory::step_to_mean(groups_->num_workers()), alike);
      note_sending(0, step);
    } else {
      send(0, step, OuterChannel::Coding::never);
    }
    finish_round();
    has_arrived_ = false;
    memory_.take_mean(0, groups_->num_workers());
    if (background_ != nullptr) {  // what has come there is the mean of all
      background_->exchange();
      background_->start_at_weights();
    }
  } else {
    background_ != nullptr ? background_->adopt_anchor() : memory_.begin_round(0);
  }
  return end;
}

double OuterLoop::mean_over_workers(double number) {
  double sum = groups_->world->rank() == 0 ? number : 0.0;
  sum_over_all(std::span(&sum, 1), "mean over workers");
  return sum / groups_->num_workers();
}

std::vector<double> OuterLoop::of_workers(std::span<const double> own) {
  std::vector<double> all(own.size() * static_cast<std::size_t>(groups_->num_workers()), 0.0);
  if (groups_->world->rank() == 0) {  // it speaks for its worker
    const std::size_t first = own.size() * static_cast<std::size_t>(groups_->worker_index());
    std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(first));
  }
  sum_over_all(all, "progress of workers");
  return all;
}

void OuterLoop::exchange_anchor(std::int64_t step) {
  look();  // what has arrived by now is no later for the gather
  model_->finish_gather();
  const bool is_there = background_ != nullptr && rounds_.last_end == step;
  if (background_ != nullptr && !anchor_in_use_ && !is_there) {
    wait_for_round();
  }
  look();
  // Nobody looks while the anchor is in use.
  goes_unseen_ = goes_unseen_ || (is_under_way() && sent_.arrived == 0.0);
  // The time between both calls is no step of the round.
  const double now = groups_->world->now();
  if (background_ != nullptr && !anchor_in_use_ && !is_there) {
    double nothing = 0.0;
    sum_over_all(std::span(&nothing, 1), "workers that meet for the anchor");
    background_->gather_anchor();
  }
  round_began_ += anchor_in_use_ ? now - exchanged_at_ : 0.0;
  exchanged_at_ = now;
  anchor_in_use_ = !anchor_in_use_;
  if (is_there) {
    return;
  }
  if (background_ == nullptr) {
    memory_.exchange_anchor();
  } else {
    background_->exchange();
    if (!anchor_in_use_ && has_arrived_) {  // its place has had the anchor meanwhile
      background_->begin_start(step_of(rounds_.last_end), penalties());
    }
  }
  publish();
}

// Data ranks that update the same elements have moved their parts of them.
void OuterLoop::publish() {
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
  wait_for_all(gathers);
  model_->begin_publishing();
}

}  // namespace slackline
