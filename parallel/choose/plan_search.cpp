#include "parallel/choose/plan_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel/predict/timeline/retiming.h"
#include "parallel/predict/timeline/timeline.h"

namespace slackline::schedule {

namespace {

using Choices = std::vector<std::optional<std::size_t>>;

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
         const CostModel& plain,
         const std::vector<ClassChoices>& classes,
         const SearchLimits& limits)
      : schedule_(schedule),
        plain_(plain),
        classes_(classes),
        limits_(limits),
        simulates_(num_ops(schedule) <= kFewOps) {
    members_.reserve(classes.size());
    for (const ClassChoices& row : classes) {
      members_.push_back(row.members);
    }
  }

  [[nodiscard]] ChosenCodecs run() {
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

 private:
  [[nodiscard]] ClassCost cost_of(std::size_t members, std::optional<std::size_t> choice) const {
    return choice ? classes_[members].choices[*choice].cost : ClassCost{};
  }

  [[nodiscard]] double error_of(std::size_t members, std::optional<std::size_t> choice) const {
    return choice ? classes_[members].choices[*choice].error : 0.0;
  }

  [[nodiscard]] CostModel costs_of(const Choices& choices) const {
    CostModel costs = plain_;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i]) {
        costs.compressed[members_[i]] = cost_of(i, choices[i]);
      }
    }
    return costs;
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
      const std::vector<CodecChoice>& all = classes_[i].choices;
      const auto least =
          std::min_element(all.begin(), all.end(), [](const CodecChoice& a, const CodecChoice& b) {
            return a.cost.share < b.cost.share;
          });
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
        if (!worth[i]) {
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
    std::vector<double> errors;
    std::vector<double> by_seconds;
    const Seconds reached = step(choices);
    Choices tried = choices;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      tried[i].reset();
      const Seconds lost = std::max(step(tried) - reached, kEqual * reached);
      tried[i] = choices[i];
      errors.push_back(error_of(i, choices[i]));
      by_seconds.push_back(errors.back() / lost.value);
    }
    const Choices a = relaxed_in_order(choices, limit, errors);
    const Choices b = relaxed_in_order(choices, limit, by_seconds);
    return total_error(b) < total_error(a) ? b : a;
  }

  [[nodiscard]] Choices relaxed_in_order(Choices choices,
                                         Seconds limit,
                                         const std::vector<double>& weights) {
    std::vector<std::size_t> order(classes_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return weights[a] > weights[b];
    });
    for (const std::size_t i : order) {
      Choices by_error = options(i);
      std::stable_sort(by_error.begin(), by_error.end(), [&](auto a, auto b) {
        return error_of(i, a) < error_of(i, b);
      });
      for (const std::optional<std::size_t> option : by_error) {
        const std::optional<std::size_t> before = choices[i];
        if (option == before) {
          break;
        }
        choices[i] = option;
        if (step(choices) <= limit) {
          break;
        }
        choices[i] = before;
      }
    }
    return choices;
  }

  [[nodiscard]] double total_error(const Choices& choices) const {
    double error = 0.0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      error += error_of(i, choices[i]);
    }
    return error;
  }

  const Schedule& schedule_;
  const CostModel& plain_;
  const std::vector<ClassChoices>& classes_;
  SearchLimits limits_;
  bool simulates_;
  std::vector<TransferClass> members_;
  std::optional<Retiming> retiming_;
  std::vector<ClassCost> of_classes_;  // scratch
};

}  // namespace

ChosenCodecs search_codecs(const Schedule& schedule,
                           const CostModel& plain,
                           const std::vector<ClassChoices>& classes,
                           const SearchLimits& limits) {
  return Search(schedule, plain, classes, limits).run();
}

}  // namespace slackline::schedule
