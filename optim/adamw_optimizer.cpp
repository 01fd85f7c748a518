#include "optim/adamw_optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/kernels/update/adamw.h"
#include "core/kernels/update/sum_of_squares.h"
#include "core/tensor/arena.h"

namespace slackline {

namespace {

// Keeps the clip factor finite at norm 0; the usual constant of trainers of this kind.
constexpr double kClipEpsilon = 1e-6;

double clip_factor(double clip_norm, double gradient_norm) {
  if (clip_norm == 0.0) {
    return 1.0;
  }
  return std::min(1.0, clip_norm / (gradient_norm + kClipEpsilon));
}

std::size_t one_moment_bytes(std::span<const Shape> shapes) {
  std::size_t bytes = 0;
  for (const Shape& shape : shapes) {
    bytes += Arena::aligned_bytes(DType::f32, shape);
  }
  return bytes;
}

std::vector<Shape> shapes_of(std::span<const OptimizedTensor> tensors) {
  std::vector<Shape> shapes;
  for (const OptimizedTensor& tensor : tensors) {
    shapes.push_back(tensor.is_trained() ? tensor.weight.shape() : Shape{0});
  }
  return shapes;
}

// One view per shape, aligned to cache lines, front to back.
std::vector<Tensor> views_of(const Buffer& buffer, std::span<const Shape> shapes) {
  std::vector<Tensor> views;
  std::size_t offset = 0;
  for (const Shape& shape : shapes) {
    views.push_back(buffer.view(DType::f32, shape, offset));
    offset += Arena::aligned_bytes(DType::f32, shape);
  }
  return views;
}

// Numbers of what is trained, among 0 of what is not.
std::vector<double> in_place_of_trained(const std::vector<double>& numbers,
                                        std::span<const OptimizedTensor> tensors) {
  std::vector<double> all;
  all.reserve(tensors.size());
  auto next = numbers.begin();
  for (const OptimizedTensor& tensor : tensors) {
    all.push_back(tensor.is_trained() ? *next++ : 0.0);
  }
  return all;
}

}  // namespace

AdamwOptimizer::AdamwOptimizer(std::vector<OptimizedTensor> tensors,
                               const OptimizerConfig& config,
                               Device device)
    : tensors_(std::move(tensors)), config_(config) {
  std::set<std::string_view> names;
  for (const OptimizedTensor& tensor : tensors_) {
    SL_CHECK(names.insert(tensor.name).second, "two tensors are named " + tensor.name);
  }
  const std::vector<Shape> shapes = shapes_of(tensors_);
  const std::size_t bytes = one_moment_bytes(shapes);
  first_moments_ = Buffer("AdamW first moments", bytes, backing_of(device));
  second_moments_ = Buffer("AdamW second moments", bytes, backing_of(device));
  first_moments_.fill_zero();
  second_moments_.fill_zero();
  m_ = views_of(first_moments_, shapes);
  v_ = views_of(second_moments_, shapes);
}

std::vector<double> AdamwOptimizer::squared_norms(StreamView stream) const {
  std::vector<Tensor> gradients;
  gradients.reserve(tensors_.size());
  for (const OptimizedTensor& tensor : tensors_) {
    if (tensor.is_trained()) {
      gradients.push_back(tensor.gradient);
    }
  }
  return in_place_of_trained(sums_of_squares(stream, gradients), tensors_);
}

std::optional<std::string> AdamwOptimizer::first_non_finite(StreamView stream) const {
  const std::vector<double> squares = squared_norms(stream);
  const auto found = std::ranges::find_if_not(squares, [](double s) { return std::isfinite(s); });
  return found == squares.end()
             ? std::nullopt
             : std::optional(tensors_[static_cast<std::size_t>(found - squares.begin())].name);
}

void AdamwOptimizer::step(StreamView stream, double lr, double gradient_norm) {
  SL_CHECK(std::isfinite(gradient_norm), "gradient norm " + std::to_string(gradient_norm));
  ++step_count_;
  AdamwStep step = bare_step();
  step.lr = lr;
  step.gradient_scale = clip_factor(config_.clip_norm, gradient_norm);
  std::vector<AdamwUpdate> updates;
  updates.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const OptimizedTensor& tensor = tensors_[i];
    if (!tensor.is_trained()) {
      continue;
    }
    step.weight_decay = tensor.decay == WeightDecay::yes ? config_.weight_decay : 0.0;
    updates.push_back({.tensors = {.weight = tensor.weight,
                                   .gradient = tensor.gradient,
                                   .m = m_[i],
                                   .v = v_[i],
                                   .weight_copy = tensor.weight_copy},
                       .step = step});
  }
  adamw(stream, updates);
}

AdamwStep AdamwOptimizer::bare_step() const {
  return {.beta1 = config_.beta1, .beta2 = config_.beta2, .eps = config_.eps, .step = step_count_};
}

std::vector<double> AdamwOptimizer::squared_directions(StreamView stream) const {
  std::vector<Moments> moments;
  moments.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].is_trained()) {
      moments.push_back({.m = m_[i], .v = v_[i]});
    }
  }
  return in_place_of_trained(sums_of_squared_directions(stream, moments, bare_step()), tensors_);
}

void AdamwOptimizer::set_step_count(std::int64_t count) {
  SL_CHECK(count >= 0, "step count " + std::to_string(count));
  step_count_ = count;
}

Tensor AdamwOptimizer::first_moment(std::string_view name) const {
  return m_[index_of(name)];
}

Tensor AdamwOptimizer::second_moment(std::string_view name) const {
  return v_[index_of(name)];
}

std::size_t AdamwOptimizer::moment_bytes(std::span<const Shape> shapes) {
  return 2 * one_moment_bytes(shapes);
}

std::size_t AdamwOptimizer::index_of(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [name](const OptimizedTensor& tensor) {
        return tensor.name == name;
      });
  SL_CHECK(found != tensors_.end() && found->is_trained(),
           "no tensor that is trained is named " + std::string(name));
  return static_cast<std::size_t>(found - tensors_.begin());
}

}  // namespace slackline
