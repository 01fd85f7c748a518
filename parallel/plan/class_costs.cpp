#include "parallel/plan/class_costs.h"

#include <algorithm>

#include "compress/codec_bytes.h"

namespace slackline {

namespace {

// Additions over ranks, one after the other; or one exchange, of gathered frames or of rows that
// each go to their owner.
schedule::Rounds rounds_of(const CodedMessage& message) {
  if (!adds(message.codec.kind) || message.is_cut) {
    return {.gathers = message.exchanges};
  }
  const CodecPart any{.name = "", .shape = {.rows = 1, .columns = 1}};
  return {.sums = static_cast<int>(sum_rounds(message.codec, {any}).size())};
}

}  // namespace

std::optional<CodecSeconds> codec_seconds(const std::vector<CodedMessage>& messages,
                                          const StepCosts& costs) {
  const auto is_known = [&](const CodedMessage& message) {
    return costs.of_codec(message.codec, message.shape).has_value();
  };
  return std::ranges::all_of(messages, is_known)
             ? std::make_optional(codec_seconds_or_assumed(messages, costs))
             : std::nullopt;
}

CodecSeconds codec_seconds_or_assumed(const std::vector<CodedMessage>& messages,
                                      const StepCosts& costs) {
  CodecSeconds sum;
  for (const CodedMessage& message : messages) {
    const CodecCost cost = codec_cost(costs, message.codec, message.shape);
    sum.encode += message.encoded * cost.encode;
    sum.decode += static_cast<double>(message.frames) * cost.decode;
  }
  return sum;
}

schedule::ClassCost class_cost(const ClassBytes& members, const CodecSeconds& seconds) {
  if (members.is_priced) {
    return {};
  }
  schedule::ClassCost cost{.encode = seconds.encode, .decode = seconds.decode};
  if (members.raw > 0) {
    cost.share = static_cast<double>(members.sent) / static_cast<double>(members.raw);
  }
  if (schedule::is_once_a_step(members.members.phase)) {
    for (const CodedMessage& message : members.compressed) {
      const schedule::Rounds rounds = rounds_of(message);  // messages of one sum go side by side
      if (rounds.sums + rounds.gathers > cost.rounds.sums + cost.rounds.gathers) {
        cost.rounds = rounds;
      }
    }
  }
  return cost;
}

std::map<schedule::TransferClass, schedule::ClassCost> class_costs(const MeshLists& lists,
                                                                   const CompressionPlan& plan,
                                                                   const StepCosts& costs) {
  std::map<schedule::TransferClass, schedule::ClassCost> classes;
  for (const ClassBytes& row : class_bytes(lists, plan)) {
    classes[row.members] = class_cost(row, codec_seconds_or_assumed(row.compressed, costs));
  }
  return classes;
}

}  // namespace slackline
