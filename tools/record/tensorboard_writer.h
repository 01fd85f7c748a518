#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace slackline {

// Returns the time of now in seconds since 1970, as events and lines of metrics.jsonl have it.
[[nodiscard]] double unix_seconds();

// Scalars of a run for TensorBoard: DIRECTORY/events.out.tfevents.<seconds>.<host>. A resumed run
// opens a file of its own; TensorBoard reads all files of a directory as one run, in name order.
// One thread at a time.
class TensorboardWriter {
 public:
  // `start_seconds` (since 1970) goes into the name and the first record; a file of that name stays
  // as it is and this one gets ".1", ".2" ... behind it. Throws FileError.
  explicit TensorboardWriter(
      const std::string& directory,
      std::int64_t start_seconds = static_cast<std::int64_t>(unix_seconds()));

  // Adds one point of the curve `tag`, with the time of now. Throws FileError.
  void scalar(std::string_view tag, std::int64_t step, double value);

  // Hands to the system what was added since. Throws FileError.
  void flush();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
  };

  void write(std::string_view record);
  [[noreturn]] void fail(std::string_view action) const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace slackline
