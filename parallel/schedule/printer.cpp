#include "parallel/schedule/printer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace slackline::schedule {

namespace {

// Each OpKind has its letters here, in the order of the kinds.
constexpr std::array<std::string_view, 9> kLetters = {
    "rF", "F", "sF", "rB", "B", "I", "W", "sB", "wait"};

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

std::string op_text(const Schedule& schedule, const Op& op) {
  std::string text(kLetters.at(index(static_cast<int>(op.kind))));
  if (op.kind == OpKind::wait) {
    return text;
  }
  text += std::to_string(op.micro_batch);
  if (schedule.num_chunks > 1) {
    text += '.';
    text += std::to_string(op.chunk / schedule.num_ranks);
  }
  return text;
}

std::string schedule_text(const Schedule& schedule, ShownOps shown) {
  std::vector<std::vector<std::string>> rows;
  std::size_t width = 0;
  for (const std::vector<Op>& ops : schedule.ranks) {
    rows.emplace_back();
    for (const Op& op : ops) {
      if (shown == ShownOps::all || is_compute(op.kind)) {
        rows.back().push_back(op_text(schedule, op));
        width = std::max(width, rows.back().back().size());
      }
    }
  }
  std::string text;
  const std::size_t rank_width = std::to_string(schedule.num_ranks - 1).size();
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    std::string line = "rank ";
    line += padded(std::to_string(rank), rank_width);
    line += " |";
    for (const std::string& cell : rows[rank]) {
      line += ' ';
      line += padded(cell, width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
  }
  return text;
}

}  // namespace slackline::schedule
