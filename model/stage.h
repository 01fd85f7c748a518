#pragma once

#include <memory>
#include <vector>

#include "core/arena.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"

namespace slackline {

// The layers that one rank runs: here all of them. Owns nothing but activations; parameters belong
// to the Parameters object, which must outlive the stage.
//
// One step is: begin_step; for each micro-batch forward then backward; finish_gradients. After
// that every Parameter::gradient holds the gradient of the mean loss.
class Stage {
 public:
  struct Options {
    BatchShape micro_batch;      // largest shape of a pass
    DType compute = DType::f32;  // of activations; as the parameters'
    enum class Purpose { train, evaluate } purpose = Purpose::train;
  };

  Stage(Parameters& parameters, const ModelConfig& config, const Options& options);

  // Clears the gradients that passes add to (the others are written by the first pass).
  void begin_step(StreamView stream);

  // Runs embedding, blocks and final norm, and keeps what backward needs.
  void forward(const Pass& pass);

  // Loss and gradients of the micro-batch last run forward. Returns the sum of its tokens' losses;
  // gradients are of scale * sum. scale is 1 / tokens of the global batch.
  [[nodiscard]] double backward(const Pass& pass, float scale);

  // Joins the two gradients of a tied table.
  void finish_gradients(StreamView stream);

  // Sum of losses of a micro-batch, without gradients or dropout.
  [[nodiscard]] double evaluate(Pass pass);

  // What the last forward pass left: (N, C) after the final norm.
  [[nodiscard]] const Tensor& final_norm_output() const { return activations_.final_norm.y; }

  [[nodiscard]] const Head& head() const { return head_; }

  // Bytes the constructor takes for activations, and the workspace a stream must offer.
  [[nodiscard]] static std::size_t activation_bytes(const ModelConfig& config,
                                                    const Options& options);
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const Options& options,
                                                   int num_threads);

 private:
  // Every tensor kept for one micro-batch in flight.
  struct Activations {
    std::vector<Tensor> residual;          // (N, C) before each block, and after the last
    std::vector<BlockActivations> blocks;  // one per block, or one shared by all of them
    NormActivations final_norm;
  };

  static Activations allocate(Arena& arena, const ModelConfig& config, const Options& options);
  [[nodiscard]] const BlockActivations& kept(std::size_t block) const;
  [[nodiscard]] const Tensor& residual(std::size_t block) const;  // the block's input

  Parameters* parameters_;
  ModelConfig config_;
  Options options_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Norm final_norm_;
  Head head_;
  Arena arena_;
  Activations activations_;
};

}  // namespace slackline
