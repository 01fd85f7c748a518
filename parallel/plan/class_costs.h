#pragma once

#include <map>
#include <optional>
#include <vector>

#include "parallel/plan/class_bytes.h"
#include "parallel/plan/cost_model.h"
#include "parallel/plan/step_costs.h"

namespace slackline {

// What codecs take of one rank: for a message of a boundary, for sums or for gathers.
struct CodecSeconds {
  schedule::Seconds encode{};
  schedule::Seconds decode{};
};

// Returns nothing where the costs do not know the codec of one of the messages.
[[nodiscard]] std::optional<CodecSeconds> codec_seconds(const std::vector<CodedMessage>& messages,
                                                        const StepCosts& costs);

// Takes assumed costs for messages that the costs do not know.
[[nodiscard]] CodecSeconds codec_seconds_or_assumed(const std::vector<CodedMessage>& messages,
                                                    const StepCosts& costs);

// The class in a timeline.
[[nodiscard]] schedule::ClassCost class_cost(const ClassBytes& members,
                                             const CodecSeconds& seconds);

// Returns what every class of the plan costs in a timeline, with assumed costs for messages that
// the costs do not know.
[[nodiscard]] std::map<schedule::TransferClass, schedule::ClassCost> class_costs(
    const MeshLists& lists, const CompressionPlan& plan, const StepCosts& costs);

}  // namespace slackline
