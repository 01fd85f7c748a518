#pragma once

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "parallel/step/mesh_model.h"
#include "tests/equivalence/mesh_run.h"

namespace slackline::testing {

// Logical tensors put together from what ranks hold of them. Ranks call put() at the same time.
class LogicalState {
 public:
  enum class Of { all, trained };  // parameters

  explicit LogicalState(const ModelConfig& model, Of parameters = Of::all);

  // Elements piece.range of a rank's local tensor, f32 or bf16.
  void put(const OptimizerPiece& piece, const Tensor& elements);

  // All tensors; throws Error unless each element was put once.
  [[nodiscard]] LogicalTensors take();

  // Throws Error when weights that a rank has for its passes are not, bit for bit or rounded to
  // bf16, its part of `logical`.
  static void require_copies(const LogicalTensors& logical, const MeshModel& model);

 private:
  LogicalTensors tensors_;
  std::mutex mutex_;
  std::size_t elements_ = 0;      // of the model
  std::size_t elements_put_ = 0;  // guarded by mutex_
};

}  // namespace slackline::testing
