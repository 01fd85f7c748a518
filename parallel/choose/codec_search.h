#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "compress/codec_setting.h"
#include "parallel/choose/plan_search.h"
#include "parallel/plan/step_costs.h"
#include "parallel/predict/step_cost_model.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Lists what a class may be compressed by.
struct OfferedCodecs {
  schedule::ClassChoices choices{};
  std::vector<CodecSetting> settings{};  // of the choices
  std::vector<double> losses{};          // of their messages, as shares
  bool in_passes = false;                // transfers that passes begin and wait for
};

// Chooses codecs for all classes of a step. Those of the timeline are searched class by class
// (plan_search.h). Sums and gathers of passes are no transfers there but part of what passes take,
// so that each choice of them is a cost model of its own, and the others are searched under it. All
// stages are plain or have the same codec first, a class that may not have it the strongest of
// those that lose less; of these the one that loses least in about the shortest step is kept, then
// class by class what loses less at that step. So a codec that pays on one stage and costs more on
// others is not found. By the same limits throughout.
class CodecSearch {
 public:
  using Choices = std::vector<std::optional<std::size_t>>;

  // All arguments must outlive it. Throws as cost_model().
  CodecSearch(const MeshLists& lists,
              const StepCosts& costs,
              const LinkSpeeds& links,
              const std::vector<OfferedCodecs>& offered);

  [[nodiscard]] const schedule::ChosenCodecs& chosen() const { return chosen_; }

  // The step's costs with transfers of passes as chosen and all else plain.
  [[nodiscard]] schedule::CostModel plain_model() const { return model_of(chosen_.choices); }

  // The step as chosen but for this class, in the timeline or in passes.
  [[nodiscard]] schedule::Seconds step_with(std::size_t members,
                                            std::optional<std::size_t> choice) const;

 private:
  [[nodiscard]] bool is_of_passes(std::size_t members) const {
    return offered_[members].in_passes && !offered_[members].settings.empty();
  }

  [[nodiscard]] schedule::CostModel model_of(const Choices& choices) const;
  [[nodiscard]] schedule::Seconds step_of(const Choices& choices) const;
  [[nodiscard]] double error_of(std::size_t members, std::optional<std::size_t> choice) const;
  [[nodiscard]] double error_of(const Choices& choices) const;
  [[nodiscard]] schedule::ChosenCodecs searched(const Choices& of_passes) const;

  // A codec and what it loses of a message.
  struct Tried {
    CodecSetting setting{};
    double loss = 0.0;
  };

  [[nodiscard]] std::vector<Choices> alike() const;
  [[nodiscard]] Choices with(Choices choices, schedule::Site site, const Tried& tried) const;
  void choose_for_passes(const std::vector<Choices>& tries);
  [[nodiscard]] schedule::ChosenCodecs relaxed(schedule::ChosenCodecs found,
                                               schedule::Seconds limit) const;

  const MeshLists& lists_;
  const StepCosts& costs_;
  const LinkSpeeds& links_;
  const std::vector<OfferedCodecs>& offered_;
  const schedule::Schedule& schedule_;
  schedule::SearchLimits limits_{};
  schedule::ChosenCodecs chosen_{};
};

}  // namespace slackline
