#include "parallel/plan/compression_plan.h"

#include <algorithm>

namespace slackline {

using schedule::TransferClass;

const CodecSetting* CompressionPlan::setting_of(const TransferClass& members) const {
  const auto row = std::ranges::find(classes, members, &Class::members);
  return row != classes.end() && row->codec ? &*row->codec : nullptr;
}

bool CompressionPlan::compresses_anything() const {
  return std::ranges::any_of(classes, [](const Class& row) { return row.codec.has_value(); });
}

bool CompressionPlan::compresses_any_of(schedule::Site site) const {
  return std::ranges::any_of(
      classes, [&](const Class& row) { return row.codec && row.members.site == site; });
}

std::vector<TransferClass> CompressionPlan::members() const {
  std::vector<TransferClass> members;
  members.reserve(classes.size());
  for (const Class& row : classes) {
    members.push_back(row.members);
  }
  return members;
}

}  // namespace slackline
