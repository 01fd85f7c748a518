#include "parallel/schedule/transfer_passes.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "parallel/schedule/make_schedule.h"

namespace slackline::schedule {

namespace {

using Ops = std::vector<Op>;

bool is_own_forward(const Op& earlier, const Op& use) {
  return earlier == Op{OpKind::forward, use.chunk, use.micro_batch};
}

Ops with_early_receives(const Schedule& schedule, const Ops& compute) {
  const auto is_pass = [](const Op& op) { return op.kind != OpKind::backward_weight; };
  Ops ops;
  if (!compute.empty()) {
    append_receive(schedule, compute.front(), ops);
  }
  for (auto op = compute.begin(); op != compute.end(); ++op) {
    const auto next = std::find_if(op + 1, compute.end(), is_pass);
    const bool posts = is_pass(*op) && next != compute.end();
    if (posts && !is_own_forward(*op, *next)) {
      append_receive(schedule, *next, ops);
    }
    ops.push_back(*op);
    append_send(schedule, *op, ops);
    if (posts && is_own_forward(*op, *next)) {
      append_receive(schedule, *next, ops);
    }
  }
  return ops;
}

// Passes between which a rank exchanges nothing, and the weight parts that follow them.
struct Group {
  Ops passes;
  Ops weights;
};

// A rank without a steady state, all of whose forward passes are warm-up, has no pairs: its first
// gradient arrives only after its last output has left.
bool makes_pairs(const Schedule& schedule, int rank) {
  const ScheduleOptions options{.num_ranks = schedule.num_ranks,
                                .num_chunks = schedule.num_chunks,
                                .num_micro_batches = schedule.num_micro_batches};
  return schedule.kind == Kind::interleaved &&
         interleaved_warmup(options, rank) < options.num_micro_batches * options.num_chunks;
}

std::vector<Group> make_groups(const Schedule& schedule, int rank) {
  std::vector<Group> groups;
  const bool pairs = makes_pairs(schedule, rank);
  for (const Op& op : schedule.ranks[static_cast<std::size_t>(rank)]) {
    const bool second_of_pair = pairs && !groups.empty() && makes_input_gradient(op.kind) &&
                                groups.back().passes.size() == 1 &&
                                groups.back().passes[0].kind == OpKind::forward;
    if (op.kind == OpKind::backward_weight) {
      groups.back().weights.push_back(op);
    } else if (second_of_pair) {
      groups.back().passes.push_back(op);
    } else {
      groups.push_back({{op}, {}});
    }
  }
  return groups;
}

// Appends `posts`, what runs beside them, and the wait for them.
void append_exchange(const Ops& posts, const Ops& beside, Ops& ops) {
  ops.insert(ops.end(), posts.begin(), posts.end());
  ops.insert(ops.end(), beside.begin(), beside.end());
  if (!posts.empty()) {
    ops.push_back({.kind = OpKind::wait});
  }
}

// The first group comes after an empty one, the last before an empty one.
void append_between(const Schedule& schedule, const Group& before, const Group& after, Ops& ops) {
  Ops sends;
  Ops receives;
  for (const Op& op : before.passes) {
    append_send(schedule, op, sends);
  }
  for (const Op& op : after.passes) {
    append_receive(schedule, op, receives);
  }
  const bool one_direction = schedule.kind != Kind::interleaved && !before.passes.empty() &&
                             !after.passes.empty() && before.passes[0].kind == after.passes[0].kind;
  if (one_direction && !receives.empty()) {
    append_exchange(sends, {}, ops);
    append_exchange(receives, before.weights, ops);
    return;
  }
  sends.insert(sends.end(), receives.begin(), receives.end());
  append_exchange(sends, before.weights, ops);
}

Ops with_exchanges(const Schedule& schedule, int rank) {
  Ops ops;
  Group before;
  for (const Group& group : make_groups(schedule, rank)) {
    append_between(schedule, before, group, ops);
    ops.insert(ops.end(), group.passes.begin(), group.passes.end());
    before = group;
  }
  append_between(schedule, before, {}, ops);
  return ops;
}

}  // namespace

void append_receive(const Schedule& schedule, const Op& use, Ops& ops) {
  if (use.kind == OpKind::forward && schedule.has_transfer_before(use.chunk)) {
    ops.push_back({OpKind::receive_forward, use.chunk, use.micro_batch});
  } else if (makes_input_gradient(use.kind) && schedule.has_transfer_after(use.chunk)) {
    ops.push_back({OpKind::receive_backward, use.chunk, use.micro_batch});
  }
}

void append_send(const Schedule& schedule, const Op& made, Ops& ops) {
  if (made.kind == OpKind::forward && schedule.has_transfer_after(made.chunk)) {
    ops.push_back({OpKind::send_forward, made.chunk, made.micro_batch});
  } else if (makes_input_gradient(made.kind) && schedule.has_transfer_before(made.chunk)) {
    ops.push_back({OpKind::send_backward, made.chunk, made.micro_batch});
  }
}

void post_receives_early(Schedule& schedule) {
  schedule.transfers = Transfers::asynchronous;
  for (Ops& ops : schedule.ranks) {
    ops = with_early_receives(schedule, ops);
  }
}

void pair_exchanges(Schedule& schedule) {
  schedule.transfers = Transfers::blocking;
  for (int rank = 0; rank < schedule.num_ranks; ++rank) {
    schedule.ranks[static_cast<std::size_t>(rank)] = with_exchanges(schedule, rank);
  }
}

}  // namespace slackline::schedule
