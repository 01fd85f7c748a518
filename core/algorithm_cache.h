#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/log.h"

namespace slackline {

// Which algorithm a library is to use for each problem: measured once and kept in a file, so that
// every process that shares it takes the same, and gives the same bits. Nothing in here measures
// or knows the library.
//
// The file belongs to one owner, a card with a version of the library. It is JSON:
//   {"owner": "...", "algorithms": {"PROBLEM": "128 hexadecimal digits" or null, ...}}
// and PATH.lock beside it is locked by who measures. A file that is damaged or another owner's is
// written anew. Where no file can be kept nothing is measured either, since bits would depend on
// timing. Each of the two is said in one warning.
//
// Thread-safe. What was chosen once holds for the life of the object.
class AlgorithmCache {
 public:
  // What the library makes of itself, and reads again in the same version.
  using Algorithm = std::array<std::uint64_t, 8>;
  // None: the problem is not for the library.
  using Choice = std::optional<Algorithm>;

  struct Question {
    std::string problem;  // in words, the same in every process
    Choice first;         // where nothing can be kept
    // False for a choice from the file that cannot be; it is measured anew.
    std::function<bool(const Choice&)> is_usable;
    // Called at most once, while no other process that shares the file measures.
    std::function<Choice()> measure;
  };

  // An empty path: there is no place for a file.
  AlgorithmCache(
      std::string path,
      std::string owner,
      std::function<void(std::string_view)> warn = [](std::string_view message) {
        log_warning(message);
      });

  // Blocks while others measure. REQUIRES: what measure() waits for does not wait for a thread or
  // process that asks this cache.
  [[nodiscard]] Choice choose(const Question& question);

 private:
  using Choices = std::map<std::string, Choice>;

  [[nodiscard]] Choices read();
  [[nodiscard]] Choice measured(const Question& question, Choices kept);
  void give_up(std::string_view reason);

  std::string path_;
  std::string owner_;
  std::function<void(std::string_view)> warn_;
  std::mutex mutex_;  // of what follows
  Choices known_;
  bool keeps_ = true;
  bool said_damaged_ = false;
};

// The one to take of measured algorithms, the first of which is the library's own suggestion:
// another has to be faster by more than 2 %, or noise would choose among equals.
// REQUIRES: there is one.
[[nodiscard]] std::size_t worth_taking(std::span<const double> seconds);

// Where programs keep what can be made again: $XDG_CACHE_HOME/slackline, or ~/.cache/slackline.
// Empty where neither variable holds an absolute path.
[[nodiscard]] std::string user_cache_directory();

}  // namespace slackline
