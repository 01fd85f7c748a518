#include "parallel/choose/codec_search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/predict/timeline/timeline.h"

namespace slackline {

namespace {

using schedule::ChosenCodecs;
using schedule::CostModel;
using schedule::Seconds;

}  // namespace

CodecSearch::CodecSearch(const MeshLists& lists,
                         const StepCosts& costs,
                         const LinkSpeeds& links,
                         const std::vector<OfferedCodecs>& offered)
    : lists_(lists), costs_(costs), links_(links), offered_(offered), schedule_(lists.schedule()) {
  const std::vector<Choices> tries = alike();
  if (tries.size() > 1) {
    limits_.shortest =
        schedule::make_timeline(schedule_, cost_model(lists_, costs_, std::nullopt)).step;
  }
  chosen_ = searched(tries.front());
  if (tries.size() > 1) {
    choose_for_passes({tries.begin() + 1, tries.end()});
  }
}

CostModel CodecSearch::model_of(const Choices& choices) const {
  CompressionPlan passes;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (is_of_passes(i) && choices[i]) {
      passes.classes.push_back(
          {.members = offered_[i].choices.members, .codec = offered_[i].settings[*choices[i]]});
    }
  }
  return cost_model(lists_, costs_, links_, passes);
}

Seconds CodecSearch::step_of(const Choices& choices) const {
  CostModel model = model_of(choices);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (!is_of_passes(i) && choices[i]) {
      const schedule::ClassChoices& row = offered_[i].choices;
      model.compressed[row.members] = row.choices[*choices[i]].cost;
    }
  }
  return schedule::make_timeline(schedule_, model).step;
}

Seconds CodecSearch::step_with(std::size_t members, std::optional<std::size_t> choice) const {
  Choices choices = chosen_.choices;
  choices[members] = choice;
  return step_of(choices);
}

double CodecSearch::error_of(std::size_t members, std::optional<std::size_t> choice) const {
  return choice ? offered_[members].choices.choices[*choice].error : 0.0;
}

double CodecSearch::error_of(const Choices& choices) const {
  double error = 0.0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    error += error_of(i, choices[i]);
  }
  return error;
}

ChosenCodecs CodecSearch::searched(const Choices& of_passes) const {
  std::vector<schedule::ClassChoices> of_timeline;
  of_timeline.reserve(offered_.size());
  for (std::size_t i = 0; i < offered_.size(); ++i) {
    of_timeline.push_back(is_of_passes(i) ? schedule::ClassChoices{offered_[i].choices.members, {}}
                                          : offered_[i].choices);
  }
  ChosenCodecs found =
      schedule::search_codecs(schedule_, model_of(of_passes), of_timeline, limits_);
  for (std::size_t i = 0; i < offered_.size(); ++i) {
    if (is_of_passes(i)) {
      found.choices[i] = of_passes[i];
    }
  }
  return found;
}

// All ways to leave each site of passes plain or to give it one codec, where its classes may have
// it; all plain is the first.
std::vector<CodecSearch::Choices> CodecSearch::alike() const {
  std::map<schedule::Site, std::vector<Tried>> tried;
  for (std::size_t i = 0; i < offered_.size(); ++i) {
    const OfferedCodecs& row = offered_[i];
    for (std::size_t choice = 0; is_of_passes(i) && choice < row.settings.size(); ++choice) {
      std::vector<Tried>& of_site = tried[row.choices.members.site];
      const auto known = std::ranges::find(of_site, row.settings[choice], &Tried::setting);
      if (known == of_site.end()) {
        of_site.push_back({.setting = row.settings[choice], .loss = row.losses[choice]});
      } else {
        known->loss = std::max(known->loss, row.losses[choice]);
      }
    }
  }
  std::vector<Choices> list{Choices(offered_.size())};
  for (const auto& entry : tried) {
    const std::size_t before = list.size();
    for (const Tried& codec : entry.second) {
      for (std::size_t i = 0; i < before; ++i) {
        list.push_back(with(list[i], entry.first, codec));
      }
    }
  }
  return list;
}

CodecSearch::Choices CodecSearch::with(Choices choices,
                                       schedule::Site site,
                                       const Tried& tried) const {
  for (std::size_t i = 0; i < offered_.size(); ++i) {
    if (!is_of_passes(i) || offered_[i].choices.members.site != site) {
      continue;
    }
    const std::vector<CodecSetting>& own = offered_[i].settings;
    const std::vector<double>& losses = offered_[i].losses;
    const auto same = std::ranges::find(own, tried.setting);
    if (same != own.end()) {
      choices[i] = static_cast<std::size_t>(same - own.begin());
      continue;
    }
    for (std::size_t choice = 0; choice < own.size(); ++choice) {
      if (losses[choice] < tried.loss && (!choices[i] || losses[*choices[i]] < losses[choice])) {
        choices[i] = choice;
      }
    }
  }
  return choices;
}

void CodecSearch::choose_for_passes(const std::vector<Choices>& tries) {
  std::vector<ChosenCodecs> found{chosen_};
  for (const Choices& choices : tries) {
    found.push_back(searched(choices));
  }
  const Seconds floor = *limits_.shortest;
  const auto shorter = [](const ChosenCodecs& a, const ChosenCodecs& b) { return a.step < b.step; };
  const Seconds limit = std::ranges::min_element(found, shorter)->step + limits_.tolerance * floor;
  std::erase_if(found, [&](const ChosenCodecs& one) { return one.step > limit; });
  const auto loses_less = [this](const ChosenCodecs& a, const ChosenCodecs& b) {
    return error_of(a.choices) < error_of(b.choices);
  };
  ChosenCodecs best = relaxed(*std::ranges::min_element(found, loses_less), limit);
  if (best.step <= chosen_.step - limits_.least_gain * floor) {
    best.plain = chosen_.plain;
    chosen_ = std::move(best);
  }
}

// Classes that lose most first.
ChosenCodecs CodecSearch::relaxed(ChosenCodecs found, Seconds limit) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < offered_.size(); ++i) {
    if (is_of_passes(i) && found.choices[i]) {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return error_of(a, found.choices[a]) > error_of(b, found.choices[b]);
  });
  for (const std::size_t i : order) {
    const std::optional<std::size_t> own = found.choices[i];
    Choices finer{std::nullopt};
    for (std::size_t choice = 0; choice < offered_[i].settings.size(); ++choice) {
      if (error_of(i, choice) < error_of(i, own)) {
        finer.emplace_back(choice);
      }
    }
    std::ranges::stable_sort(
        finer, [&](const auto& a, const auto& b) { return error_of(i, a) < error_of(i, b); });
    for (const std::optional<std::size_t>& choice : finer) {
      found.choices[i] = choice;
      if (const Seconds step = step_of(found.choices); step <= limit) {
        found.step = step;
        break;
      }
      found.choices[i] = own;
    }
  }
  return found;
}

}  // namespace slackline
