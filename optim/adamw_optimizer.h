#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "optim/optimizer_config.h"

namespace slackline {

struct AdamwStep;  // core/kernels/update/adamw.h

enum class WeightDecay { no, yes };

// A tensor that is trained, or one without a gradient, which an update leaves as it is: views of
// what its owner keeps for as long as the optimizer lives.
struct OptimizedTensor {
  std::string name;
  Tensor weight{};       // f32, updated in place; not trained, it may be bf16
  Tensor gradient{};     // f32, same shape; finished when the optimizer reads it
  Tensor weight_copy{};  // bf16 of the same shape, kept equal to weight rounded; or empty
  WeightDecay decay = WeightDecay::no;

  [[nodiscard]] bool is_trained() const { return !gradient.empty(); }
};

// AdamW over named tensors. Owns the moments of what is trained: one f32 buffer for each, zero at
// the start.
// One thread uses it, with one stream.
//
// Invariants: 1. names are unique; 2. results depend on the tensors alone, not on their order nor
// on the number of threads; 3. step_count() is the number of updates the moments hold.
class AdamwOptimizer {
 public:
  // State lies in the device's memory, where the tensors are.
  AdamwOptimizer(std::vector<OptimizedTensor> tensors,
                 const OptimizerConfig& config,
                 Device device = Device::cpu);

  // The sum of squares of each tensor's gradient, in the order of tensors(), 0 without one: what
  // ranks add up for a global norm. One pass over the gradients.
  [[nodiscard]] std::vector<double> squared_norms(StreamView stream) const;

  // The first tensor, in tensors() order, whose gradient holds an infinity or NaN.
  [[nodiscard]] std::optional<std::string> first_non_finite(StreamView stream) const;

  // Updates every weight, its copy and its moments. `gradient_norm` is that of all gradients of the
  // model together: they are scaled by clip_norm / (gradient_norm + 1e-6) on the way where that is
  // below 1. REQUIRES: it is finite.
  void step(StreamView stream, double lr, double gradient_norm);

  // The sum of squares of the direction in which the last update moved each tensor, rate and decay
  // apart, in the order of tensors(), 0 of what is not trained. One pass over the moments.
  // REQUIRES: there has been one.
  [[nodiscard]] std::vector<double> squared_directions(StreamView stream) const;

  [[nodiscard]] std::int64_t step_count() const { return step_count_; }

  // For a resume, together with the moments. REQUIRES: count >= 0.
  void set_step_count(std::int64_t count);

  [[nodiscard]] std::span<const OptimizedTensor> tensors() const { return tensors_; }

  // The moments of a tensor, to save and to load them. REQUIRES: one of that name is trained.
  [[nodiscard]] Tensor first_moment(std::string_view name) const;
  [[nodiscard]] Tensor second_moment(std::string_view name) const;

  // Bytes of both moments together for tensors of these shapes: what the constructor will take.
  [[nodiscard]] static std::size_t moment_bytes(std::span<const Shape> shapes);

 private:
  // A step by the config, without rate, decay and clipping.
  [[nodiscard]] AdamwStep bare_step() const;
  [[nodiscard]] std::size_t index_of(std::string_view name) const;

  std::vector<OptimizedTensor> tensors_;
  OptimizerConfig config_;
  Buffer first_moments_;
  Buffer second_moments_;
  std::vector<Tensor> m_;  // views, in the order of tensors_
  std::vector<Tensor> v_;
  std::int64_t step_count_ = 0;
};

}  // namespace slackline
