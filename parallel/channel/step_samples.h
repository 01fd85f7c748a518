#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compress/message_sums.h"
#include "parallel/channel/gradient_sample.h"
#include "parallel/plan/compression_plan.h"

namespace slackline {

// What one rank measured of a step's compressed messages, while what ranks bring to sums of
// gradients is still being added up. Used by the rank's thread.
class StepSamples {
 public:
  // Takes samples of the classes that the plan compresses.
  explicit StepSamples(const CompressionPlan& plan);

  // Adds sums of a pipeline class.
  void add(const schedule::TransferClass& members, const MessageSums& sums);

  // A sample of gradients whose add_up() has begun, and each matrix's class, or none where another
  // rank has the matrix and counts it. `counts`: this rank counts what its group has in common.
  struct Gradients {
    std::unique_ptr<GradientSample> sample{};
    std::vector<std::optional<schedule::TransferClass>> classes{};
    bool counts = false;
  };

  void add(Gradients gradients);

  // The compressed classes of the plan, in its order.
  [[nodiscard]] const std::vector<schedule::TransferClass>& classes() const { return classes_; }

  // Waits for what is on its way. Returns this rank's part of each class's sums: those of all ranks
  // add up to the class's.
  [[nodiscard]] std::vector<MessageSums> finish();

 private:
  std::vector<schedule::TransferClass> classes_{};
  std::vector<MessageSums> sums_{};  // of each class
  std::vector<Gradients> gradients_{};
};

}  // namespace slackline
