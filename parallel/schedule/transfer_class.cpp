#include "parallel/schedule/transfer_class.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <utility>

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

// Returns the phase of each pass of a rank, sorted by the pass.
std::vector<std::pair<PassKey, Phase>> phases_of_passes(const std::vector<Op>& ops) {
  std::vector<Op> passes;
  std::copy_if(ops.begin(), ops.end(), std::back_inserter(passes), [](const Op& op) {
    return op.kind == OpKind::forward || makes_input_gradient(op.kind);
  });
  const auto is_forward = [](const Op& op) { return op.kind == OpKind::forward; };
  const auto first_backward =
      std::find_if_not(passes.begin(), passes.end(), is_forward) - passes.begin();
  const auto after_last_forward =
      std::find_if(passes.rbegin(), passes.rend(), is_forward).base() - passes.begin();
  std::vector<std::pair<PassKey, Phase>> phases;
  phases.reserve(passes.size());
  for (std::ptrdiff_t i = 0; i < std::ssize(passes); ++i) {
    phases.emplace_back(pass_of(passes[static_cast<std::size_t>(i)]),
                        i < first_backward        ? Phase::warmup
                        : i >= after_last_forward ? Phase::cooldown
                                                  : Phase::steady);
  }
  std::ranges::sort(phases);
  return phases;
}

}  // namespace

std::vector<Phase> phases_of(const std::vector<Op>& ops) {
  const std::vector<std::pair<PassKey, Phase>> by_pass = phases_of_passes(ops);
  std::vector<Phase> phases;
  phases.reserve(ops.size());
  for (const Op& op : ops) {
    const PassKey pass = pass_of(op);
    const auto found =
        std::ranges::lower_bound(by_pass, pass, {}, &std::pair<PassKey, Phase>::first);
    const bool has_pass = op.kind != OpKind::wait && found != by_pass.end() && found->first == pass;
    phases.push_back(has_pass ? found->second : Phase::steady);
  }
  return phases;
}

std::map<TransferId, TransferClass> boundary_classes(const Schedule& schedule) {
  std::map<TransferId, TransferClass> classes;
  for (const std::vector<Op>& ops : schedule.ranks) {
    const std::vector<Phase> phases = phases_of(ops);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (is_send(ops[i].kind)) {
        const TransferId id = id_of_send(ops[i]);
        classes[id] = {.site = id.site, .stage = id.stage, .phase = phases[i]};
      }
    }
  }
  return classes;
}

}  // namespace slackline::schedule
