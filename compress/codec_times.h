#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/codec_setting.h"

namespace slackline {

struct CallTimes {
  double seconds = 0.0;
  std::int64_t calls = 0;

  CallTimes& operator+=(const CallTimes& other) {
    seconds += other.seconds;
    calls += other.calls;
    return *this;
  }

  // Returns seconds of a call, 0 where there was none: only one end of a boundary encodes.
  [[nodiscard]] double mean() const {
    return calls == 0 ? 0.0 : seconds / static_cast<double>(calls);
  }
};

// Adds the time from its making to its end, as that of so many calls: none where it is a further
// piece of one that has been counted.
class TimedCall {
 public:
  explicit TimedCall(CallTimes& times, std::int64_t calls = 1)
      : times_(&times), calls_(calls), start_(std::chrono::steady_clock::now()) {}

  ~TimedCall() {
    times_->seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    times_->calls += calls_;
  }

  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

 private:
  CallTimes* times_;
  std::int64_t calls_;
  std::chrono::steady_clock::time_point start_;
};

// A codec's work on messages of one shape on one rank: each call on one message, however many are
// decoded to add them up. What it does after a message has gone is not in it.
struct CodecTimes {
  CodecSetting setting{};
  std::vector<std::int64_t> shape{};  // of its matrix; of several matrices: their elements together
  std::size_t sent_bytes = 0;         // of a message, by one rank and before any collective
  CallTimes encode{};
  CallTimes decode{};
};

}  // namespace slackline
