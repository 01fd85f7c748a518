// What of outer rounds stands in checkpoints.

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/parameter_table.h"
#include "parallel/step/outer_loop.h"

namespace slackline {

OuterStep OwedStep::of(const std::string& parameter) const {
  OuterStep own = step;
  const auto divisor = divisors.find(parameter);
  own.scale /= divisor != divisors.end() ? divisor->second : 1.0;
  return own;
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
    views.push_back(
        {.piece = &model_->pieces()[share.piece],
         .share = share,
         .anchor = memory_.anchor(share),
         .momentum = memory_.momentum(share),
         .difference = memory_.difference(share),
         .lead = config_.eager ? memory_.lead(share) : Tensor(),
         .saved = share.counted && (background_ != nullptr || groups_->worker_index() == 0)});
  }
  return views;
}

std::string OuterLoop::state_text(std::span<const WorkerProgress> workers) const {
  const bool has_norm_bound = config_.clip_kind == OuterClip::norm && std::isfinite(config_.clip);
  nlohmann::ordered_json progress = nlohmann::ordered_json::array();
  for (const WorkerProgress& worker : workers) {
    progress.push_back({{"updates", worker.updates}, {"skips", worker.skips}});
  }
  const OuterStep owed = has_arrived_ ? step_of(rounds_.last_end) : OuterStep();
  const std::vector<double> divisors = penalties();
  const bool has_own_divisors = has_arrived_ && config_.penalty == OuterPenalty::gap_per_tensor;
  std::map<std::string, double> own_divisors;
  if (has_own_divisors) {
    const std::vector<ParameterSpec> table = parameter_table(model_->job().model);
    for (std::size_t i = 0; i < table.size(); ++i) {
      own_divisors[table[i].name] = divisors[i];
    }
  }
  return nlohmann::ordered_json{
      {"workers", groups_->num_workers()},
      {"last_end", rounds_.last_end},
      {"before", rounds_.before},
      {"momentum_rate", momentum_rate() ? nlohmann::json(*momentum_rate()) : nlohmann::json()},
      {"period", rounds_.period},
      {"round_has_arrived", has_arrived_},
      {"owed_step",
       {{"lr", owed.lr},
        {"momentum", owed.momentum},
        {"scale", has_own_divisors ? owed.scale : owed.scale / divisors.front()},
        {"divisors", own_divisors},
        {"clip", std::isfinite(owed.clip) ? nlohmann::json(owed.clip) : nlohmann::json()},
        {"norm", has_norm_bound ? nlohmann::json(config_.clip) : nlohmann::json()},
        {"nesterov", owed.nesterov}}},
      {"eager", has_leads_},
      {"fragments", config_.fragments},
      {"fragment", travels_},
      {"penalty", largest_penalty_},
      {"moved_squares", moved_squares_},
      {"directions", reach_.ended()},
      {"directions_of_workers", reach_.of_workers()},
      {"ends_travel", background_ != nullptr},
      {"sent_squares",
       std::isnan(sent_squares_) ? nlohmann::json() : nlohmann::json(sent_squares_)},
      {"arrived_squares", arrived_squares_},
      {"progress", std::move(progress)}}
      .dump();
}

void OuterLoop::require_goes_on(const OuterConfig& config,
                                const std::string& text,
                                std::int64_t step) {
  const nlohmann::json state = nlohmann::json::parse(text);
  const auto require_within = [&](const char* key, std::int64_t from, std::int64_t to) {
    if (state.contains(key)) {
      const auto number = state.at(key).get<std::int64_t>();
      if (number < from || number > to) {
        throw FileError(fmt::format("outer.{}: must be {} to {}; got {}", key, from, to, number));
      }
    }
  };
  require_within("last_end", 0, step);
  require_within("before", 0, state.at("last_end").get<std::int64_t>());
  require_within("period", 1, std::int64_t{1} << 40U);  // as many as run.steps may be
  require_within("fragment", 0, state.value("fragments", 1) - 1);
  if (has_leads(text) && !config.eager) {
    throw ConfigError("outer.eager: must stay true: the round under way began ahead of its anchor");
  }
  const bool has_arrived = state.at("round_has_arrived").get<bool>();
  const int fragments = state.value("fragments", 1);
  if (has_arrived && fragments != config.fragments) {
    throw ConfigError(fmt::format(
        "outer.fragments: must stay {}: one of so many has arrived that the anchor lacks; got {}",
        fragments,
        config.fragments));
  }
  if (has_arrived && fragments == 1 && !config.is_late()) {
    throw ConfigError("outer.delay: must stay 1: a round has arrived that the anchor lacks");
  }
}

void OuterLoop::load(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  const bool has_arrived = state.at("round_has_arrived").get<bool>();
  has_leads_ = has_leads(text);
  rounds_.last_end = state.at("last_end").get<std::int64_t>();
  rounds_.before = state.at("before").get<std::int64_t>();
  if (rounds_.by_choice) {
    rounds_.period = state.at("period").get<std::int64_t>();
  }
  has_arrived_ = has_arrived;
  travels_ = has_arrived ? state.value("fragment", 0) : 0;
  convert_momentum(text);
  largest_penalty_ = state.at("penalty").get<double>();
  const auto moved = state.at("moved_squares").get<std::vector<double>>();
  if (moved.size() == moved_squares_.size()) {  // else the penalty is another one now
    moved_squares_ = moved;
  }
  reach_.load(state.value("directions", std::vector<double>()),
              state.value("directions_of_workers", std::vector<double>()));
  // Squares of differences and of end points say nothing of each other.
  const bool alike = state.value("ends_travel", false) == (background_ != nullptr);
  const nlohmann::json& sent = state.at("sent_squares");  // null: not known there either
  sent_squares_ =
      alike && !sent.is_null() ? sent.get<double>() : std::numeric_limits<double>::quiet_NaN();
  const bool keeps = alike && groups_->everyone->rank() == 0;
  arrived_squares_ = keeps ? state.at("arrived_squares").get<double>() : 0.0;
  if (background_ != nullptr && has_arrived_) {
    background_->begin_start(step_of(rounds_.last_end), penalties());
  }
}

std::optional<double> OuterLoop::momentum_rate() const {
  return config_.method == OuterMethod::slowmo ? std::make_optional(rate_of(rounds_.last_end))
                                               : std::nullopt;
}

void OuterLoop::convert_momentum(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  const auto saved = state.find("momentum_rate");
  if (saved == state.end() || saved->is_null() != momentum_rate().has_value()) {
    return;  // it is in the units that it was saved in
  }
  const double rate = saved->is_null() ? *momentum_rate() : saved->get<double>();
  if (rate > 0.0) {
    memory_.scale_momentum(saved->is_null() ? 1.0 / rate : rate);
  }
}

std::optional<WorkerProgress> OuterLoop::progress_of(const std::string& text, int worker) {
  const nlohmann::json state = nlohmann::json::parse(text);
  const auto workers = state.find("progress");
  if (workers == state.end() || static_cast<std::size_t>(worker) >= workers->size()) {
    return std::nullopt;
  }
  const nlohmann::json& own = workers->at(static_cast<std::size_t>(worker));
  return WorkerProgress{.updates = own.at("updates").get<std::int64_t>(),
                        .skips = own.at("skips").get<std::int64_t>()};
}

bool OuterLoop::lacks_end(const std::string& text, std::int64_t step) {
  const nlohmann::json state = nlohmann::json::parse(text);
  return state.at("last_end").get<std::int64_t>() < step ||
         state.at("round_has_arrived").get<bool>();
}

bool OuterLoop::has_leads(const std::string& text) {
  return nlohmann::json::parse(text).value("eager", false);
}

std::optional<OwedStep> OuterLoop::owed_step(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  if (!state.at("round_has_arrived").get<bool>()) {
    return std::nullopt;
  }
  const nlohmann::json& step = state.at("owed_step");
  OwedStep owed{.step = {.lr = step.at("lr").get<double>(),
                         .momentum = step.at("momentum").get<double>(),
                         .scale = step.at("scale").get<double>(),
                         .nesterov = step.at("nesterov").get<bool>()}};
  if (const auto clip = step.find("clip"); clip != step.end() && clip->is_number()) {
    owed.step.clip = clip->get<double>();
  }
  owed.divisors = step.value("divisors", std::map<std::string, double>());
  if (const auto norm = step.find("norm"); norm != step.end() && norm->is_number()) {
    owed.norm_bound = norm->get<double>();
  }
  return owed;
}

void OuterLoop::make_owed_step(const OwedStep& owed,
                               const std::function<bool(const std::string&)>& owes) {
  for (const OuterShare& share : memory_.shares()) {
    const std::string& name = model_->pieces()[share.piece].parameter->spec.name;
    if (owes(name)) {
      memory_.move_anchor_at(share, owed.of(name));
    }
  }
  if (background_ != nullptr) {
    background_->adopt_anchor();
  }
  publish();
  model_->finish_gather();
}

std::vector<ChannelState> OuterLoop::codec_state() const {
  const StateRanks ranks{.tensor = groups_->tensor_rank(), .tensor_size = groups_->tensor->size()};
  std::vector<ChannelState> list;
  for (const std::unique_ptr<OuterChannel>& channel : channels_) {
    channel->add_state(ranks, list);
  }
  return list;
}

int OuterLoop::workers_of(const std::string& text) {
  return text.empty() ? 0 : nlohmann::json::parse(text).value("workers", 0);
}

}  // namespace slackline
