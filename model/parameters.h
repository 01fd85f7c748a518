#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "model/model_slice.h"
#include "model/shard.h"

namespace slackline {

enum class Gradients { none, fp32 };

// One parameter: its description and views of the part of it that this rank holds.
struct Parameter {
  ParameterSpec spec{};    // of the logical tensor
  Shard shard{};           // which elements of it are here; shard.shape is the views' shape
  Tensor weight{};         // f32 master
  Tensor gradient{};       // f32, accumulated over micro-batches; empty where there is none
  Tensor weight_bf16{};    // rounded copy that bf16 products read; empty in fp32 and for norms
  Tensor second_moment{};  // f32, the optimizer's where this rank updates all of it; else empty
  std::size_t first_element = 0;  // where weight and gradient begin in their buffers, in elements

  // What the ops read: the bf16 copy where there is one.
  [[nodiscard]] const Tensor& compute() const { return weight_bf16.empty() ? weight : weight_bf16; }
};

// The parameters of a model, or of one rank's slice of it, in table order. Owns one buffer each for
// weights, gradients and bf16 copies, unless their memory is somebody else's. In the first two a
// parameter stands at the same element: tables and matrices with their biases in table order, then
// all norms, so that what several tensor ranks have to sum is one range. What is not trained stands
// behind all that is, in the same order. Each begins on a cache line; gaps are zero.
//
// Invariants: 1. weight_bf16 is weight rounded, at every moment when no update is running (callers
// that write weights call refresh_copies); 2. input_gradient is all zero between steps.
class Parameters {
 public:
  // Where biases stand: behind the matrix they belong to, or all of them before the norms.
  enum class Biases { with_matrices, before_norms };
  // Whose memory the views are of: buffers of this object, or what somebody sets them to. With
  // gradients, only the latter may leave parameters untrained.
  enum class Memory { own, others };

  struct Options {
    DType compute = DType::f32;  // f32 or bf16
    Gradients gradients = Gradients::fp32;
    std::optional<ModelSlice> slice{};      // absent: the whole model
    Device device = Device::cpu;            // whose memory all of it is
    Biases biases = Biases::with_matrices;  // before norms only where memory is others'
    Memory memory = Memory::own;
  };

  Parameters(const ModelConfig& config, const Options& options);

  [[nodiscard]] const ModelSlice& slice() const { return slice_; }

  // Whose memory they lie in: cpu or cuda.
  [[nodiscard]] Device device() const { return device_; }

  [[nodiscard]] std::vector<Parameter>& all() { return parameters_; }

  [[nodiscard]] const std::vector<Parameter>& all() const { return parameters_; }

  // REQUIRES: the slice holds a parameter of that name.
  [[nodiscard]] Parameter& at(std::string_view name);

  // A tied table has two gradients (docs/numerics.md). Where one rank has both ends of
  // the model, the head's is the parameter's own and the input's stands here until
  // Embedding::finish_gradient adds it. Empty elsewhere.
  [[nodiscard]] const Tensor& input_gradient() const { return input_gradient_; }

  // Who adds the input's gradient to the head's, once a step.
  enum class Join { by_stage, by_others };

  // REQUIRES: the memory is not of this object.
  void set_input_gradient(const Tensor& gradient, Join join) {
    input_gradient_ = gradient;
    join_ = join;
  }

  [[nodiscard]] Join join() const { return join_; }

  // All weights, and all gradients, as one row of f32 each; norms stand last.
  // REQUIRES: the memory is of this object.
  [[nodiscard]] Tensor all_weights() const;
  [[nodiscard]] Tensor all_gradients() const;

  // Rounds every weight into its bf16 copy; nothing to do in fp32.
  void refresh_copies(StreamView stream);

  struct Bytes {
    std::size_t weights = 0;
    std::size_t gradients = 0;
    std::size_t input_gradient = 0;
    std::size_t copies = 0;
  };

  // Elements from where a parameter of this shape begins to where the next one may. Where biases
  // stand apart, bf16 weights stand at the same elements, and begin on a cache line as well.
  [[nodiscard]] static std::size_t place_elements(const Shape& shape, Biases biases);

  // What the constructor would place where, with views of nothing.
  [[nodiscard]] static std::vector<Parameter> describe(const ModelConfig& config,
                                                       const ModelSlice& slice,
                                                       Biases biases = Biases::with_matrices);

  // What the constructor will take.
  [[nodiscard]] static Bytes bytes(const ModelConfig& config, const Options& options);

 private:
  void clear_gaps();

  ModelSlice slice_;
  Device device_;
  Buffer weights_;
  Buffer gradients_;
  Buffer copies_;
  Buffer input_gradient_buffer_;
  Tensor input_gradient_;
  Join join_ = Join::by_stage;
  std::vector<Parameter> parameters_;
};

// Sets `weight`, f32 or bf16, to the initial values of elements `range` of the parameter's local
// tensor: a function of (seed, name, element) alone, element being that of the logical tensor.
void initialize(StreamView stream,
                const Parameter& parameter,
                Slice range,
                const Tensor& weight,
                std::uint64_t seed);

}  // namespace slackline
