#include "parallel/schedule/schedule_traits.h"

#include <array>

namespace slackline::schedule {

extern const ScheduleTraits kGpipeTraits;
extern const ScheduleTraits kOneFOneBTraits;
extern const ScheduleTraits kInterleavedTraits;
extern const ScheduleTraits kZbH1Traits;

const ScheduleTraits& traits_of(Kind kind) {
  static constexpr std::array<const ScheduleTraits*, kNumKinds> kTraits = {
      &kGpipeTraits, &kOneFOneBTraits, &kInterleavedTraits, &kZbH1Traits};
  return *kTraits.at(static_cast<std::size_t>(kind));
}

}  // namespace slackline::schedule
