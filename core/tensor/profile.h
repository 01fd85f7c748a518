#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/tensor/stream.h"

namespace slackline {

// Seconds and calls per named range, of one stream. Ranges are recorded by the thread that
// submits to the stream, so no locking. Nested ranges count in both.
class Profile {
 public:
  struct Entry {
    double seconds = 0.0;
    std::int64_t calls = 0;
  };

  void add(std::string_view name, double seconds);

  [[nodiscard]] const std::map<std::string, Entry, std::less<>>& entries() const {
    return entries_;
  }

  void clear() { entries_.clear(); }

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

// Times the block it stands in, when the stream has a profile; costs a branch or two when not. On
// the CUDA device a range of that name for profilers: of what is launched, not of when it runs.
class ProfileRange {
 public:
  ProfileRange(StreamView stream, std::string_view name);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  Profile* profile_;
  bool on_device_;
  std::string_view name_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace slackline
