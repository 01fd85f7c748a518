#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "parallel/plan/cost_model.h"
#include "parallel/schedule/ops.h"

// Which classes of transfers to compress, and how strongly, so that the step becomes short at
// little error.
namespace slackline::schedule {

// One way to compress a class. Errors of classes add up: whatever measure the caller takes.
struct CodecChoice {
  ClassCost cost{};
  double error{};
};

struct ClassChoices {
  TransferClass members{};
  std::vector<CodecChoice> choices{};  // besides leaving it plain
};

// Shares of the step that would be if transfers took no time: what counts as little then does not
// depend on links, so that a faster one gives no reason to compress more.
struct SearchLimits {
  double least_gain = 0.01;  // less is not worth any error
  double tolerance = 0.005;  // what of the shortest step is given back for less error
  // The step that would be if transfers took no time, where it is known: passes may wait for some
  // that are none of the timeline. Else that of the timeline without its own.
  std::optional<Seconds> shortest{};
};

struct ChosenCodecs {
  std::vector<std::optional<std::size_t>> choices{};  // of each class; absent: plain
  Seconds plain{};                                    // the step without codecs
  Seconds step{};                                     // with the chosen ones
};

// Looks for the shortest step first: from every class' smallest message, and for small steps from
// none, too, class by class whatever choice shortens the step most, until none does. Going down
// from all classes finds cuts of tied critical paths, of which no class gains anything alone. Then
// takes back error as long as the step stays within `tolerance` of that, once the largest first and
// once the most per second, and keeps the smaller sum. Steps are timed anew for every choice; what
// does not gain `least_gain` in the end leaves everything plain.
//
// `plain` has the costs without codecs. Deterministic. REQUIRES: as make_timeline().
[[nodiscard]] ChosenCodecs search_codecs(const Schedule& schedule,
                                         const CostModel& plain,
                                         const std::vector<ClassChoices>& classes,
                                         const SearchLimits& limits = {});

}  // namespace slackline::schedule
