#include "parallel/predict/timeline/timeline_printer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <fmt/format.h>

#include "parallel/schedule/printer.h"

namespace slackline::schedule {

namespace {

constexpr double kMilliseconds = 1e3;

char fill_of(const TimelineNode& node) {
  switch (node.op.kind) {
    case OpKind::forward:
      return '-';
    case OpKind::backward_weight:
      return '~';
    default:
      return '=';
  }
}

// Draws the node over [start, end) of the row, which stands for the whole step.
void draw(std::string& row, const TimelineNode& node, std::string label, Seconds step) {
  const auto column = [&](Seconds time) {
    return static_cast<std::size_t>(std::lround(static_cast<double>(row.size()) * (time / step)));
  };
  const std::size_t begin = column(node.start);
  const std::size_t end = std::min(column(node.end), row.size());
  if (begin >= end) {
    return;
  }
  label.resize(end - begin, fill_of(node));
  row.replace(begin, label.size(), label);
}

// Rounded, so that the rounding noise of a zero does not print a sign.
std::string milliseconds(Seconds seconds) {
  constexpr double kSteps = 1e3;  // as many as the digits show
  const double rounded = std::round(kSteps * kMilliseconds * seconds.value) / kSteps;
  return fmt::format("{:11.3f}", rounded == 0.0 ? 0.0 : rounded);
}

}  // namespace

std::string timeline_text(const Schedule& schedule, const Timeline& timeline, int width) {
  std::vector<std::string> rows(timeline.ranks.size(),
                                std::string(static_cast<std::size_t>(width), '.'));
  for (const TimelineNode& node : timeline.nodes) {
    std::string& row = rows[static_cast<std::size_t>(node.rank)];
    if (node.kind == NodeKind::op && is_compute(node.op.kind)) {
      draw(row, node, op_text(schedule, node.op), timeline.step);
    } else if (node.kind == NodeKind::optimizer) {
      draw(row, node, "U", timeline.step);
    }
  }
  std::string text;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    text += fmt::format("rank {} |{}|\n", rank, rows[rank]);
  }
  text += fmt::format(
      "step {} ms; per rank in ms:\n"
      "rank     compute     bubble    exposed     update\n",
      milliseconds(timeline.step));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const RankTimes& times = timeline.ranks[rank];
    Seconds exposed{};
    for (const Seconds part : times.exposed) {
      exposed += part;
    }
    text += fmt::format("{:<5}{}{}{}{}\n",
                        rank,
                        milliseconds(times.compute),
                        milliseconds(times.bubble),
                        milliseconds(exposed),
                        milliseconds(times.update));
  }
  return text;
}

}  // namespace slackline::schedule
