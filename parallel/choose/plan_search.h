#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "compress/codec_setting.h"
#include "parallel/plan/cost_model.h"
#include "parallel/schedule/ops.h"

// Which classes of transfers to compress, and how strongly, so that the step becomes short at
// little error.
namespace slackline::schedule {

// One way to compress a class. Errors of classes add up: whatever measure the caller takes.
struct CodecChoice {
  ClassCost cost{};
  double error{};
  // In passes these tell which classes may have the same codec, and which codec is stronger.
  CodecSetting setting{};
  double loss = 0.0;  // of messages, as a share
};

struct ClassChoices {
  TransferClass members{};
  std::vector<CodecChoice> choices{};  // besides leaving it plain
  bool in_passes = false;              // transfers that passes begin and wait for
};

// The choice of each class; absent: plain.
using Choices = std::vector<std::optional<std::size_t>>;

// Gives the costs of a step whose classes of passes are as chosen, all else plain.
using ModelOf = std::function<CostModel(const Choices& choices)>;

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
  Choices choices{};
  Seconds plain{};  // the step without codecs
  Seconds step{};   // with the chosen ones
};

// Adds to the costs of a step what choices make of classes of the timeline.
[[nodiscard]] CostModel with_codecs(CostModel costs,
                                    const std::vector<ClassChoices>& classes,
                                    const Choices& choices);

// Looks for the shortest step first: from every class' smallest message, and for small steps from
// none, too, class by class whatever choice shortens the step most, until none does. Going down
// from all classes finds cuts of tied critical paths, of which no class gains anything alone. Then
// takes back error as long as the step stays within `tolerance` of that, once the largest first and
// once the most per second, and keeps the smaller sum. Steps are timed anew for every choice; what
// does not gain `least_gain` in the end leaves everything plain.
//
// Sums and gathers of passes are no transfers of the timeline but part of what passes take, so that
// each choice of them is a cost model of its own, and the other classes are searched under it. All
// stages are plain or have the same codec first, a class that may not have it the strongest of
// those that lose less; of these the one that loses least in about the shortest step is kept, then
// class by class what loses less at that step. So a codec that pays on one stage and costs more on
// others is not found. By the same limits throughout.
//
// Deterministic. REQUIRES: as make_timeline(); with classes of passes that have choices,
// `limits.shortest`.
[[nodiscard]] ChosenCodecs search_codecs(const Schedule& schedule,
                                         const ModelOf& model_of,
                                         const std::vector<ClassChoices>& classes,
                                         const SearchLimits& limits = {});

}  // namespace slackline::schedule
