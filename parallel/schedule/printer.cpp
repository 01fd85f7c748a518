#include "parallel/schedule/printer.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace slackline::schedule {

namespace {

std::string letters(OpKind kind) {
  switch (kind) {
    case OpKind::receive_forward:
      return "rF";
    case OpKind::forward:
      return "F";
    case OpKind::send_forward:
      return "sF";
    case OpKind::receive_backward:
      return "rB";
    case OpKind::backward:
      return "B";
    case OpKind::backward_input:
      return "I";
    case OpKind::backward_weight:
      return "W";
    case OpKind::send_backward:
      return "sB";
    case OpKind::wait:
      return "wait";
  }
  return "?";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

void trim_end(std::string& text) {
  text.erase(text.find_last_not_of(' ') + 1);
}

}  // namespace

std::string op_text(const Schedule& schedule, const Op& op) {
  std::string text = letters(op.kind);
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
    trim_end(line);
    text += line;
    text += '\n';
  }
  return text;
}

}  // namespace slackline::schedule
