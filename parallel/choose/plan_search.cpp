#include "parallel/choose/plan_search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "parallel/predict/timeline/retiming.h"
#include "parallel/predict/timeline/timeline.h"

namespace slackline::schedule {

namespace {

// Below this many ops a step is simulated for every choice: links may then serve in another order.
constexpr std::size_t kFewOps = 400;
// A step that is shorter by less than this share is not shorter.
constexpr double kEqual = 1e-9;
constexpr int kMostRounds = 4;  // of simulating anew where the order of service was kept

std::size_t num_ops(const Schedule& schedule) {
  return std::accumulate(schedule.ranks.begin(),
                         schedule.ranks.end(),
                         std::size_t{0},
                         [](std::size_t sum, const auto& ops) { return sum + ops.size(); });
}

class Search {
 public:
  Search(const Schedule& schedule,
         const ModelOf& model_of,
         const std::vector<ClassChoices>& classes,
         const SearchLimits& limits)
      : schedule_(schedule),
        model_of_(model_of),
        classes_(classes),
        limits_(limits),
        simulates_(num_ops(schedule) <= kFewOps) {
    members_.reserve(classes.size());
    for (const ClassChoices& row : classes) {
      members_.push_back(row.members);
    }
  }

  [[nodiscard]] ChosenCodecs run() {
    std::vector<ChosenCodecs> found;
    for (const Choices& passes : alike()) {
      found.push_back(under(passes));
    }
    return found.size() == 1 ? found.front() : best_of_passes(std::move(found));
  }

 private:
  enum class Of { timeline, passes };

  // Lists the ways to leave each site of passes plain or to give it one codec, where its classes
  // may have it; all plain is the first.
  [[nodiscard]] std::vector<Choices> alike() const {
    std::map<Site, std::vector<CodecChoice>> tried;
    for (const ClassChoices& row : classes_) {
      if (!row.in_passes) {
        continue;
      }
      std::vector<CodecChoice>& of_site = tried[row.members.site];
      for (const CodecChoice& choice : row.choices) {
        const auto known = std::ranges::find(of_site, choice.setting, &CodecChoice::setting);
        if (known == of_site.end()) {
          of_site.push_back(choice);
        } else {
          known->loss = std::max(known->loss, choice.loss);
        }
      }
    }
    std::vector<Choices> list{Choices(classes_.size())};
    for (const auto& [site, codecs] : tried) {
      const std::size_t before = list.size();
      for (const CodecChoice& codec : codecs) {
        for (std::size_t i = 0; i < before; ++i) {
          list.push_back(given(list[i], site, codec));
        }
      }
    }
    return list;
  }

  // Gives the site's classes the codec, or the strongest that they may have of those that lose
  // less.
  [[nodiscard]] Choices given(Choices choices, Site site, const CodecChoice& tried) const {
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      if (!classes_[i].in_passes || classes_[i].members.site != site) {
        continue;
      }
      const std::vector<CodecChoice>& own = classes_[i].choices;
      const auto same = std::ranges::find(own, tried.setting, &CodecChoice::setting);
      if (same != own.end()) {
        choices[i] = static_cast<std::size_t>(same - own.begin());
        continue;
      }
      for (std::size_t choice = 0; choice < own.size(); ++choice) {
        if (own[choice].loss < tried.loss &&
            (!choices[i] || own[*choices[i]].loss < own[choice].loss)) {
          choices[i] = choice;
        }
      }
    }
    return choices;
  }

  // Chooses of what was found under each of alike().
  [[nodiscard]] ChosenCodecs best_of_passes(std::vector<ChosenCodecs> found) {
    const ChosenCodecs plain = found.front();
    const Seconds floor = *limits_.shortest;
    const auto step = [](const ChosenCodecs& one) { return one.step.value; };
    const Seconds shortest = std::ranges::min_element(found, {}, step)->step;
    const Seconds limit = shortest + limits_.tolerance * floor;
    std::erase_if(found, [&](const ChosenCodecs& one) { return one.step > limit; });
    const auto error = [this](const ChosenCodecs& one) { return total_error(one.choices); };
    const ChosenCodecs& least = *std::ranges::min_element(found, {}, error);
    ChosenCodecs best = relaxed_in_order(least, limit, errors_of(least.choices), Of::passes);
    best.plain = plain.plain;
    return best.step <= plain.step - limits_.least_gain * floor ? best : plain;
  }

  void set_passes(const Choices& choices) { plain_ = model_of_(choices); }

  // Returns what is chosen for the timeline's classes under a choice for those of passes.
  [[nodiscard]] ChosenCodecs under(const Choices& passes) {
    set_passes(passes);
    ChosenCodecs found = of_timeline();
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i].in_passes) {
        found.choices[i] = passes[i];
      }
    }
    return found;
  }

  [[nodiscard]] ChosenCodecs of_timeline() {
    const Choices none(classes_.size());
    ChosenCodecs chosen{.choices = none, .plain = simulated(none), .step = simulated(none)};
    const Choices fastest = shortest();
    const Seconds floor =
        limits_.shortest ? *limits_.shortest : make_timeline(schedule_, without_transfers()).step;
    const Seconds limit = simulated(fastest) + limits_.tolerance * floor;
    // Where links serve in another order than was kept, its step may be longer than it seemed.
    Choices best = relaxed(fastest, limit);
    best = simulated(best) <= limit ? best : fastest;
    const Seconds step = simulated(best);
    if (step <= chosen.plain - limits_.least_gain * floor) {
      chosen.choices = std::move(best);
      chosen.step = step;
    }
    return chosen;
  }

  [[nodiscard]] ClassCost cost_of(std::size_t members, std::optional<std::size_t> choice) const {
    return choice ? classes_[members].choices[*choice].cost : ClassCost{};
  }

  [[nodiscard]] double error_of(std::size_t members, std::optional<std::size_t> choice) const {
    return choice ? classes_[members].choices[*choice].error : 0.0;
  }

  [[nodiscard]] CostModel costs_of(const Choices& choices) const {
    return with_codecs(plain_, classes_, choices);
  }

  [[nodiscard]] CostModel without_transfers() const {
    CostModel costs = plain_;
    costs.link = {};
    costs.links.clear();
    costs.embedding_sync = {};
    costs.embedding_exchanges = {};
    for (ChunkCosts& chunk : costs.chunks) {
      chunk.data_reduction.clear();
      chunk.parameter_gather.clear();
    }
    return costs;
  }

  [[nodiscard]] Seconds simulated(const Choices& choices) const {
    return make_timeline(schedule_, costs_of(choices)).step;
  }

  // The order of service is kept until the next time.
  void keep_order(const Choices& choices) {
    if (!simulates_) {
      retiming_.emplace(schedule_, costs_of(choices), members_);
    }
  }

  [[nodiscard]] Seconds step(const Choices& choices) {
    if (simulates_) {
      return simulated(choices);
    }
    of_classes_.clear();
    for (std::size_t i = 0; i < choices.size(); ++i) {
      of_classes_.push_back(cost_of(i, choices[i]));
    }
    return retiming_->step(of_classes_);
  }

  // Plain, then all others.
  [[nodiscard]] Choices options(std::size_t members) const {
    Choices list{std::nullopt};
    for (std::size_t choice = 0; choice < classes_[members].choices.size(); ++choice) {
      list.emplace_back(choice);
    }
    return list;
  }

  [[nodiscard]] Choices smallest() const {
    Choices choices(classes_.size());
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i].in_passes) {
        continue;
      }
      const std::vector<CodecChoice>& all = classes_[i].choices;
      const auto least = std::ranges::min_element(
          all, {}, [](const CodecChoice& choice) { return choice.cost.share; });
      if (least != all.end() && least->cost.share < 1.0) {
        choices[i] = static_cast<std::size_t>(least - all.begin());
      }
    }
    return choices;
  }

  [[nodiscard]] Choices shortest() {
    const Choices none(classes_.size());
    Choices best = none;
    Seconds best_step = simulated(none);
    std::vector<Choices> starts{smallest()};
    if (simulates_) {
      starts.push_back(none);
    }
    for (Choices& choices : starts) {
      for (int round = 0; round < kMostRounds; ++round) {
        keep_order(choices);
        const bool changed = descend(choices);
        const Seconds reached = simulated(choices);
        if (reached < (1.0 - kEqual) * best_step) {
          best_step = reached;
          best = choices;
        }
        if (!changed || simulates_) {
          break;
        }
      }
    }
    return best;
  }

  // Returns whether it changed anything.
  bool descend(Choices& choices) {
    Seconds reached = step(choices);
    bool changed = false;
    for (bool better = true; better;) {
      better = false;
      std::vector<bool> worth = worth_trying(choices);
      for (std::size_t i = 0; i < choices.size(); ++i) {
        if (!worth[i] || classes_[i].in_passes) {
          continue;
        }
        const std::optional<std::size_t> before = choices[i];
        std::optional<std::size_t> best = before;
        for (const std::optional<std::size_t> option : options(i)) {
          choices[i] = option;
          if (option == before) {
            continue;
          }
          if (const Seconds with = step(choices); with < (1.0 - kEqual) * reached) {
            reached = with;
            best = option;
          }
        }
        choices[i] = best;
        if (best != before) {
          better = true;
          worth = worth_trying(choices);
        }
      }
      changed = changed || better;
    }
    return changed;
  }

  // Returns true for classes of which another choice may shorten the step.
  [[nodiscard]] std::vector<bool> worth_trying(const Choices& choices) {
    if (simulates_) {
      return std::vector<bool>(choices.size(), true);
    }
    static_cast<void>(step(choices));
    return retiming_->critical(of_classes_);
  }

  // Less error for each class as far as the step stays within the limit: once the largest error
  // first, once what costs the least time for its error.
  [[nodiscard]] Choices relaxed(const Choices& choices, Seconds limit) {
    keep_order(choices);
    const std::vector<double> errors = errors_of(choices);
    std::vector<double> by_seconds;
    const Seconds reached = step(choices);
    Choices tried = choices;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      tried[i].reset();
      const Seconds lost = std::max(step(tried) - reached, kEqual * reached);
      tried[i] = choices[i];
      by_seconds.push_back(errors[i] / lost.value);
    }
    const ChosenCodecs found{.choices = choices};
    const Choices a = relaxed_in_order(found, limit, errors, Of::timeline).choices;
    const Choices b = relaxed_in_order(found, limit, by_seconds, Of::timeline).choices;
    return total_error(b) < total_error(a) ? b : a;
  }

  // Gives classes of the timeline, or of passes, less error, those of the largest weight first. In
  // passes a codec only takes the place of one that loses more.
  [[nodiscard]] ChosenCodecs relaxed_in_order(ChosenCodecs found,
                                              Seconds limit,
                                              const std::vector<double>& weights,
                                              Of of) {
    std::vector<std::size_t> order(classes_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return weights[i]; });
    for (const std::size_t i : order) {
      if (classes_[i].in_passes != (of == Of::passes)) {
        continue;
      }
      const std::optional<std::size_t> before = found.choices[i];
      Choices by_error = options(i);
      std::ranges::stable_sort(by_error, {}, [&](auto option) { return error_of(i, option); });
      for (const std::optional<std::size_t> option : by_error) {
        const bool loses_less = !option || error_of(i, option) < error_of(i, before);
        if (option == before || (of == Of::passes && !loses_less)) {
          break;
        }
        found.choices[i] = option;
        const Seconds reached =
            of == Of::passes ? step_with_passes(found.choices) : step(found.choices);
        if (reached <= limit) {
          found.step = reached;
          break;
        }
        found.choices[i] = before;
      }
    }
    return found;
  }

  [[nodiscard]] Seconds step_with_passes(const Choices& choices) {
    set_passes(choices);
    return simulated(choices);
  }

  [[nodiscard]] std::vector<double> errors_of(const Choices& choices) const {
    std::vector<double> errors;
    errors.reserve(choices.size());
    for (std::size_t i = 0; i < choices.size(); ++i) {
      errors.push_back(error_of(i, choices[i]));
    }
    return errors;
  }

  [[nodiscard]] double total_error(const Choices& choices) const {
    const std::vector<double> errors = errors_of(choices);
    return std::accumulate(errors.begin(), errors.end(), 0.0);
  }

  const Schedule& schedule_;
  const ModelOf& model_of_;
  const std::vector<ClassChoices>& classes_;
  SearchLimits limits_;
  bool simulates_;
  CostModel plain_;  // with passes as set last, all else plain
  std::vector<TransferClass> members_;
  std::optional<Retiming> retiming_;
  std::vector<ClassCost> of_classes_;  // scratch
};

}  // namespace

CostModel with_codecs(CostModel costs,
                      const std::vector<ClassChoices>& classes,
                      const Choices& choices) {
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (choices[i] && !classes[i].in_passes) {
      costs.compressed[classes[i].members] = classes[i].choices[*choices[i]].cost;
    }
  }
  return costs;
}

ChosenCodecs search_codecs(const Schedule& schedule,
                           const ModelOf& model_of,
                           const std::vector<ClassChoices>& classes,
                           const SearchLimits& limits) {
  return Search(schedule, model_of, classes, limits).run();
}

}  // namespace slackline::schedule
