#pragma once

#include <vector>

namespace slackline {

// Notices when steps begin to take another time than they took before, for good: a link that
// somebody else uses now, a processor that runs hot. Of `kWindow` steps the median counts, so that
// single slow steps, a checkpoint's for example, do not. What begins before the first window is
// full counts as usual.
class DriftWatch {
 public:
  static constexpr int kSettling = 2;  // steps after restart() that are not looked at
  static constexpr int kWindow = 10;
  static constexpr double kDrift = 0.25;  // longer or shorter by more than this share

  // Adds a step. Whether the last kWindow steps differ from the first ones since restart().
  [[nodiscard]] bool add(double step_seconds);

  // What the first kWindow steps took; 0 while there are less.
  [[nodiscard]] double usual_seconds() const { return usual_seconds_; }

  // From here on another time is usual.
  void restart();

 private:
  int num_settling_ = 0;
  std::vector<double> recent_{};  // the last kWindow at most
  double usual_seconds_ = 0.0;
};

}  // namespace slackline
