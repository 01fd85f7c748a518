#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "model/parameter_table.h"

namespace slackline {

enum class Gradients { none, fp32 };

// One parameter: its description and views of its values.
struct Parameter {
  ParameterSpec spec{};
  Tensor weight{};       // f32 master
  Tensor gradient{};     // f32, accumulated over micro-batches; empty without gradients
  Tensor weight_bf16{};  // rounded copy that bf16 products read; empty in fp32 and for norms

  // What the ops read: the bf16 copy where there is one.
  [[nodiscard]] const Tensor& compute() const { return weight_bf16.empty() ? weight : weight_bf16; }
};

// All parameters of a model, in table order. Owns one buffer each for weights, gradients and bf16
// copies.
//
// Invariants: 1. weight_bf16 is weight rounded, at every moment when no update is running (callers
// that write weights call refresh_copies); 2. input_gradient is all zero between steps.
class Parameters {
 public:
  struct Options {
    DType compute = DType::f32;  // f32 or bf16
    Gradients gradients = Gradients::fp32;
  };

  Parameters(const ModelConfig& config, const Options& options);

  [[nodiscard]] std::vector<Parameter>& all() { return parameters_; }

  [[nodiscard]] const std::vector<Parameter>& all() const { return parameters_; }

  // REQUIRES: the model has a parameter of that name.
  [[nodiscard]] Parameter& at(std::string_view name);

  // A tied table has two gradients (CONTRACTS section 7 rule 3): the head's is the parameter's
  // own, the input's (V, C) stands here until Embedding::finish_gradient adds it. Empty when
  // untied.
  [[nodiscard]] const Tensor& input_gradient() const { return input_gradient_; }

  // Rounds every weight into its bf16 copy; nothing to do in fp32.
  void refresh_copies(StreamView stream);

  struct Bytes {
    std::size_t weights = 0;
    std::size_t gradients = 0;
    std::size_t input_gradient = 0;
    std::size_t copies = 0;
  };

  // What the constructor will take.
  [[nodiscard]] static Bytes bytes(const ModelConfig& config, const Options& options);

 private:
  Buffer weights_;
  Buffer gradients_;
  Buffer copies_;
  Buffer input_gradient_buffer_;
  Tensor input_gradient_;
  std::vector<Parameter> parameters_;
};

// Sets every weight to its initial value: a function of (seed, name, element) alone. Copies are
// refreshed.
void initialize(StreamView stream, Parameters& parameters, std::uint64_t seed);

}  // namespace slackline
