#include "parallel/class_costs.h"

#include <algorithm>

#include "compress/codec_bytes.h"

namespace slackline {

namespace {

// What of_message(codec, shape) says of all messages of the class together.
template <typename OfMessage>
std::optional<CodecSeconds> added_up(const ClassBytes& members, const OfMessage& of_message) {
  CodecSeconds sum;
  for (const ClassBytes::Message& message : members.compressed) {
    const std::optional<CodecCost> cost = of_message(message);
    if (!cost) {
      return std::nullopt;
    }
    sum.encode += cost->encode;
    sum.decode += cost->decode;
  }
  return sum;
}

// Of additions over ranks, one after the other.
int num_rounds(const ClassBytes::Message& message) {
  return adds(message.codec.kind)
             ? static_cast<int>(
                   sum_rounds(message.codec, {{.name = "", .shape = {.rows = 1, .columns = 1}}})
                       .size())
             : 1;
}

}  // namespace

std::optional<CodecSeconds> codec_seconds(const ClassBytes& members, const StepCosts& costs) {
  return added_up(members, [&](const ClassBytes::Message& message) {
    return costs.of_codec(message.codec, message.shape);
  });
}

CodecSeconds codec_seconds_or_assumed(const ClassBytes& members, const StepCosts& costs) {
  return *added_up(members, [&](const ClassBytes::Message& message) {
    return std::make_optional(codec_cost(costs, message.codec, message.shape));
  });
}

schedule::ClassCost class_cost(const ClassBytes& members, const CodecSeconds& seconds) {
  schedule::ClassCost cost{.encode = seconds.encode, .decode = seconds.decode};
  if (members.raw > 0) {
    cost.share = static_cast<double>(members.sent) / static_cast<double>(members.raw);
  }
  if (members.members.phase == schedule::Phase::step) {
    for (const ClassBytes::Message& message : members.compressed) {
      cost.rounds = std::max(cost.rounds, num_rounds(message));
    }
  }
  return cost;
}

}  // namespace slackline
