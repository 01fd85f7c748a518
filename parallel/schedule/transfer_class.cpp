#include "parallel/schedule/transfer_class.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <tuple>

namespace slackline::schedule {

std::string site_name(Site site) {
  return std::string(kSiteNames.at(static_cast<std::size_t>(site)));
}

std::string phase_name(Phase phase) {
  return std::string(kPhaseNames.at(static_cast<std::size_t>(phase)));
}

std::string class_text(const TransferClass& members) {
  return site_name(members.site) + ", stage " + std::to_string(members.stage) + ", " +
         phase_name(members.phase);
}

namespace {

using PassKey = std::tuple<bool, int, int>;  // forward?, chunk, micro-batch

PassKey pass_of(const Op& op) {
  return {op.kind == OpKind::forward || is_forward_transfer(op.kind), op.chunk, op.micro_batch};
}

std::map<PassKey, Phase> phases_of_passes(const std::vector<Op>& ops) {
  std::vector<Op> passes;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(passes), [](const Op& op) {
    return op.kind == OpKind::forward || makes_input_gradient(op.kind);
  });
  const auto is_forward = [](const Op& op) { return op.kind == OpKind::forward; };
  const auto first_backward =
      std::find_if_not(passes.begin(), passes.end(), is_forward) - passes.begin();
  const auto after_last_forward =
      std::find_if(passes.rbegin(), passes.rend(), is_forward).base() - passes.begin();
  std::map<PassKey, Phase> phases;
  for (std::ptrdiff_t i = 0; i < std::ssize(passes); ++i) {
    const Op& pass = passes[static_cast<std::size_t>(i)];
    phases[pass_of(pass)] = i < first_backward        ? Phase::warmup
                            : i >= after_last_forward ? Phase::cooldown
                                                      : Phase::steady;
  }
  return phases;
}

}  // namespace

std::vector<Phase> phases_of(const std::vector<Op>& ops) {
  const std::map<PassKey, Phase> by_pass = phases_of_passes(ops);
  std::vector<Phase> phases;
  for (const Op& op : ops) {
    const auto found = by_pass.find(pass_of(op));
    phases.push_back(op.kind == OpKind::wait || found == by_pass.end() ? Phase::steady
                                                                       : found->second);
  }
  return phases;
}

}  // namespace slackline::schedule
