#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/arena.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"

namespace slackline {

// Consecutive layers that run as one: all of the model, or a chunk of it with its neighbours on
// other ranks. Owns nothing but activations; parameters belong to the Parameters object, which must
// outlive the stage.
//
// One step is: begin_step; for each micro-batch forward then backward; finish_gradients. After
// that every Parameter::gradient holds the gradient of the mean loss, as far as this rank's
// micro-batches and layers go.
//
// A micro-batch in flight occupies a slot from forward (or from the arrival of its input) until its
// last backward part has ended and its gradient has been sent. Who runs the schedule assigns slots.
class Stage {
 public:
  enum class Purpose { train, evaluate };
  // When weight gradients are made: with the input gradient, or by backward_weight.
  enum class WeightGradients { now, later };

  struct Options {
    BatchShape micro_batch{};    // largest shape of a pass
    DType compute = DType::f32;  // of activations; as the parameters'
    Purpose purpose = Purpose::train;
    std::optional<ChunkSlice> chunk{};  // absent: the whole model
    int tensor_size = 1;                // as the parameters' slice
    bool sequence_parallel = false;
    int num_slots = 1;
    WeightGradients weight_gradients = WeightGradients::now;

    [[nodiscard]] LayerShape layer_shape(BatchShape batch) const {
      return {.batch = batch,
              .dtype = compute,
              .tensor_size = tensor_size,
              .sequence_parallel = sequence_parallel};
    }
  };

  Stage(Parameters& parameters, const ModelConfig& config, const Options& options);

  [[nodiscard]] const ChunkSlice& chunk() const { return chunk_; }

  // Clears the gradients that this chunk's passes add to (the others are written by the first).
  void begin_step(StreamView stream);

  // The residual stream (n, C) before the first layer: filled by whoever receives it, or by the
  // embedding. And after the last one, once forward has run.
  [[nodiscard]] const Tensor& input(int slot) const;
  [[nodiscard]] const Tensor& output(int slot) const;
  // The gradient of output(), to be filled before backward of a chunk without head; backward turns
  // it into that of input().
  [[nodiscard]] const Tensor& gradient(int slot) const;

  // Runs embedding, blocks and final norm, as far as the chunk has them, and keeps what backward
  // needs.
  void forward(const Pass& pass, int slot = 0);

  // Gradients of the micro-batch that last ran forward in this slot, of scale * the sum of its
  // tokens' losses; scale is 1 / tokens of the global batch. Returns that sum (0 without head).
  [[nodiscard]] double backward(const Pass& pass, float scale, int slot = 0);

  // The weight gradients that backward left. REQUIRES: weight_gradients is `later`.
  void backward_weight(const Pass& pass, int slot);

  // Joins the two gradients of a tied table.
  void finish_gradients(StreamView stream);

  // Sum of the losses of the micro-batch that last ran forward, without gradients. REQUIRES: head.
  [[nodiscard]] double loss(const Pass& pass, int slot = 0);

  // forward and loss, without dropout.
  [[nodiscard]] double evaluate(Pass pass);

  // What the last forward pass left: (n, C) after the final norm. REQUIRES: head.
  [[nodiscard]] const Tensor& final_norm_output(int slot = 0) const;

  [[nodiscard]] const Head& head() const { return *head_; }

  // Bytes the constructor takes for activations, and the workspace a stream must offer.
  [[nodiscard]] static std::size_t activation_bytes(const ModelConfig& config,
                                                    const Options& options);
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const Options& options,
                                                   int num_threads);

 private:
  // Every tensor kept for one micro-batch in flight.
  struct Activations {
    std::vector<Tensor> residual;          // (n, C) before each block, and after the last
    std::vector<BlockActivations> blocks;  // one per block, or one shared by all of them
    std::vector<BlockGradients> later;     // likewise one per block when weights come later
    NormActivations final_norm;            // with head
    Tensor gradient;                       // (n, C), in training
  };

  struct Slot {
    Arena arena;
    BatchShape shape{};
    Activations kept{};
  };

  static Activations allocate(Arena& arena,
                              const ModelConfig& config,
                              const Options& options,
                              BatchShape batch);
  static std::size_t slot_bytes(const ModelConfig& config, const Options& options);
  Activations& prepare(int slot, BatchShape shape);
  [[nodiscard]] const Activations& kept(int slot) const;
  [[nodiscard]] double head_backward(const Pass& pass, const Activations& kept, float scale);

  Parameters* parameters_;
  ModelConfig config_;
  Options options_;
  ChunkSlice chunk_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<Norm> final_norm_;
  std::optional<Head> head_;
  std::vector<Slot> slots_;
};

}  // namespace slackline
