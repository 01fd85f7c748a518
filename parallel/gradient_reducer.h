#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "parallel/groups.h"
#include "parallel/parallel_config.h"

namespace slackline {

// What one rank's optimizer updates of one parameter: all elements of its local tensor, or those
// that fall to this rank under zero1.
struct OptimizerPiece {
  const Parameter* parameter = nullptr;
  Slice range{};         // elements of the local tensor
  bool counted = false;  // enters the global gradient norm here: once per element over all ranks
  bool saved = false;    // enters checkpoints here: likewise
};

// Sums gradients over the data axis and, where a tied table stands on two stages, over both: every
// sum in the order of CONTRACTS section 7. Buckets of gradients whose layers have ended travel
// while the last micro-batch's backward still runs; the rest in finish().
//
// With `replicate` each rank ends with all sums. With `zero1` a rank ends with its slice of each
// bucket, its optimizer updates that slice, and gather_weights() sends the new weights round while
// the next forward pass begins; before_use() waits for what it needs.
//
// Refers to parameters and groups, which must outlive it. Used by the rank's thread.
class GradientReducer final : public ParameterUse {
 public:
  struct Options {
    DataStrategy strategy = DataStrategy::replicate;
    EmbeddingSync embedding_sync = EmbeddingSync::fused;
    bool sequence_parallel = false;
    std::size_t bucket_bytes = std::size_t{16} << 20U;  // a bucket closes when it holds as many
  };

  GradientReducer(const Parameters& parameters,
                  const ModelConfig& config,
                  const Options& options,
                  Groups& groups);

  [[nodiscard]] const std::vector<OptimizerPiece>& pieces() const { return pieces_; }

  // Of the last micro-batch's backward pass: submits buckets that are complete.
  void gradients_made(ModelPart part, int layer) override;

  // After the passes of a step: submits the rest and waits for all sums.
  void finish();

  // After the optimizer: other ranks need what this one updated. Does nothing under `replicate`.
  void gather_weights();

  void before_use(StreamView stream, ModelPart part, int layer) override;

  // Waits for every weight on its way.
  void finish_gather(StreamView stream);

 private:
  using Unit = std::pair<ModelPart, int>;  // part and layer

  // Consecutive elements of the parameters' buffers that travel together.
  struct Bucket {
    enum class Kind { layers, norms, table };

    Kind kind = Kind::layers;
    std::size_t first = 0;
    std::size_t count = 0;
    std::vector<const Parameter*> holds{};
    std::vector<Unit> units{};    // that read its weights and make its gradients
    std::vector<Unit> missing{};  // of these, in the current step
    Transfer reduction{};
    Transfer gather{};
  };

  void add(Bucket::Kind kind, const Parameter& parameter);
  void add_pieces();
  void add_piece(const Bucket& bucket, const Parameter& parameter, std::size_t index);
  void reduce(Bucket& bucket);
  void receive_weights(StreamView stream, Bucket& bucket);
  [[nodiscard]] bool is_fused(const Bucket& bucket) const;
  [[nodiscard]] Communicator& group_of(const Bucket& bucket) const;

  const Parameters* parameters_;
  Options options_;
  Groups* groups_;
  bool tied_;
  bool second_copy_;  // of a tied table: this rank is of the last stage of several
  std::vector<Bucket> buckets_;
  std::vector<OptimizerPiece> pieces_;
};

}  // namespace slackline
