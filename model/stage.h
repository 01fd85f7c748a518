#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/tensor/arena.h"
#include "core/tensor/workers.h"
#include "model/block_half.h"
#include "model/embedding.h"
#include "model/head.h"

namespace slackline {

class Stage;

// Every tensor that a chunk keeps for one micro-batch in flight, from forward (or from the arrival
// of its input) until its last backward part has ended and its gradient has been sent. Owns the
// memory. Chunks of a rank may use it in turn; whoever runs the schedule assigns slots.
class ActivationSlot {
 public:
  explicit ActivationSlot(std::size_t bytes, Backing backing = Backing::memory)
      : arena_("activations", bytes, backing) {}

 private:
  friend class Stage;

  // Lists have an entry for each half of a block, in the order of the forward pass: attention of
  // the chunk's layer i is half 2 i, its MLP half 2 i + 1. Entries of different layers may be the
  // same memory.
  struct Tensors {
    std::vector<Tensor> residual;  // (n, C) before each half, and after the last
    std::vector<HalfActivations> halves;
    std::vector<HalfGradients> later;  // of empty tensors unless weight gradients come later
    NormActivations final_norm;        // with head
    Tensor gradient;                   // (n, C), in training
  };

  Arena arena_;
  const Stage* user_ = nullptr;
  BatchShape shape_{};
  Tensors tensors_{};
};

// Consecutive layers that run as one: all of the model, or a chunk of it with its neighbours on
// other ranks. Parameters belong to the Parameters object, which must outlive the stage. Calls
// without a slot use one that the stage owns, in the memory of the parameters' device.
//
// One step is: begin_step; for each micro-batch forward then backward; finish_gradients. After
// that every Parameter::gradient holds the gradient of the mean loss, as far as this rank's
// micro-batches and layers go.
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
    TensorShare share{};                // of the tensor axis, as the parameters' slice
    bool own_slot = true;               // false: every call names a slot
    WeightGradients weight_gradients = WeightGradients::now;
    Device device = Device::cpu;  // for what is predicted: how large the head's chunks are there

    [[nodiscard]] LayerShape layer_shape(BatchShape batch) const {
      return {.batch = batch, .dtype = compute, .share = share};
    }
  };

  Stage(Parameters& parameters, const ModelConfig& config, const Options& options);

  [[nodiscard]] const ChunkSlice& chunk() const { return chunk_; }

  // Clears the gradients that this chunk's passes add to (the others are written by the first).
  void begin_step(StreamView stream);

  // Makes the slot ready for a micro-batch of this chunk: its input may be received then. Where it
  // was not, other tensors lay there.
  void prepare(ActivationSlot& slot, BatchShape shape) const;
  [[nodiscard]] bool is_prepared(const ActivationSlot& slot, BatchShape shape) const;

  // The residual stream (n, C) before the first layer: filled by whoever receives it, or by the
  // embedding. And after the last one, once forward has run.
  [[nodiscard]] const Tensor& input(const ActivationSlot& slot) const;
  [[nodiscard]] const Tensor& output(const ActivationSlot& slot) const;
  // The gradient of output(), to be filled before backward of a chunk without head; backward turns
  // it into that of input().
  [[nodiscard]] const Tensor& gradient(const ActivationSlot& slot) const;

  // Runs embedding, blocks and final norm, as far as the chunk has them, and keeps what backward
  // needs.
  void forward(const Pass& pass, ActivationSlot& slot);

  void forward(const Pass& pass) { forward(pass, *own_slot_); }

  // Gradients of the micro-batch that last ran forward in this slot, of scale * the sum of its
  // tokens' losses, which with a head are added to those of the pass; scale is 1 / tokens of the
  // global batch.
  void backward(const Pass& pass, float scale, const ActivationSlot& slot);

  void backward(const Pass& pass, float scale) { backward(pass, scale, *own_slot_); }

  // The weight gradients that backward left. REQUIRES: weight_gradients is `later`.
  void backward_weight(const Pass& pass, const ActivationSlot& slot);

  // Adds the losses of the micro-batch that last ran forward to those of the pass, without
  // gradients. REQUIRES: head.
  void add_loss(const Pass& pass, const ActivationSlot& slot) const;

  // forward and the sum of losses, without dropout.
  [[nodiscard]] double evaluate(Pass pass);

  // Joins the two gradients of a tied table, where this rank has both.
  void finish_gradients(StreamView stream);

  // What the last forward pass left: (n, C) after the final norm. REQUIRES: head.
  [[nodiscard]] const Tensor& final_norm_output() const;

  [[nodiscard]] const Head& head() const { return *head_; }

  // Bytes of a slot for this chunk, and the workspace a stream must offer.
  [[nodiscard]] static std::size_t activation_bytes(const ModelConfig& config,
                                                    const Options& options);
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const Options& options,
                                                   const Workers& workers);

 private:
  using Tensors = ActivationSlot::Tensors;

  static Tensors allocate(Arena& arena,
                          const ModelConfig& config,
                          const Options& options,
                          BatchShape batch);
  [[nodiscard]] const Tensors& kept(const ActivationSlot& slot) const;

  // The half that is a layer's attention; the next one is its MLP.
  [[nodiscard]] std::size_t attention_of(int layer) const {
    return 2 * static_cast<std::size_t>(layer - chunk_.first_layer);
  }

  // The norm at the begin of a half, or after the last one; none where the chunk ends without.
  [[nodiscard]] std::optional<FollowingNorm> norm_before(const Tensors& kept,
                                                         std::size_t half) const;
  // Makes that norm, of kept.residual[half]. REQUIRES: there is one.
  void make_norm(const Pass& pass, const Tensors& kept, std::size_t half) const;
  // Runs a half, and makes the norm `next` of its result.
  void forward_half(const Pass& pass,
                    const Tensors& kept,
                    std::size_t half,
                    const std::optional<FollowingNorm>& next) const;
  void head_backward(const Pass& pass, const Tensors& kept, float scale);

  Parameters* parameters_;
  ModelConfig config_;
  Options options_;
  ChunkSlice chunk_;
  std::optional<Embedding> embedding_;
  std::vector<BlockHalf> halves_;
  std::optional<Norm> final_norm_;
  std::optional<Head> head_;
  std::unique_ptr<ActivationSlot> own_slot_;
};

}  // namespace slackline
