#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec_setting.h"
#include "core/check.h"
#include "parallel/schedule/transfer_class.h"

namespace slackline {

// Which transfers of a step are compressed, and how: a value, the same on all ranks, made once and
// looked up by channels. Nothing else decides what is compressed.
struct CompressionPlan {
  struct Class {
    schedule::TransferClass members{};
    std::optional<CodecSetting> codec{};  // absent: its transfers stay plain
    std::string reason{};

    friend bool operator==(const Class&, const Class&) = default;
  };

  std::vector<Class> classes{};  // in order of members

  // Null where the class stays plain, or does not exist.
  [[nodiscard]] const CodecSetting* setting_of(const schedule::TransferClass& members) const;

  [[nodiscard]] bool compresses_anything() const;
  [[nodiscard]] bool compresses_any_of(schedule::Site site) const;

  // Returns what classes are of, in their order.
  [[nodiscard]] std::vector<schedule::TransferClass> members() const;

  friend bool operator==(const CompressionPlan&, const CompressionPlan&) = default;
};

// A run's plans in force from their steps on; the first from step 1.
struct PlanFromStep {
  std::int64_t from_step = 1;
  CompressionPlan plan{};

  friend bool operator==(const PlanFromStep&, const PlanFromStep&) = default;
};

using PlanHistory = std::vector<PlanFromStep>;

// The plan of a step, or what is told of it. REQUIRES: step >= 1 and plans from step 1 on.
template <typename FromStep>
[[nodiscard]] const FromStep& plan_at(const std::vector<FromStep>& plans, std::int64_t step) {
  const auto later =
      std::ranges::find_if(plans, [&](const FromStep& row) { return row.from_step > step; });
  SL_CHECK(later != plans.begin(), "no plan for step " + std::to_string(step));
  return *std::prev(later);
}

}  // namespace slackline
