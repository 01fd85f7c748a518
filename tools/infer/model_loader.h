#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/tensor/stream.h"
#include "core/tensor/workers.h"
#include "data/formats/stored_tokenizer.h"
#include "data/tokenizers/tokenizer.h"
#include "model/boundary_filter.h"
#include "model/parameters.h"
#include "parallel/plan/activation_compression.h"

namespace slackline {

// Name of the tokenizer's file in a checkpoint that has one.
inline constexpr const char* kTokenizerName = "tokenizer.json";

// Opens a checkpoint and verifies every file. Throws FileError; given a run directory, it says
// which checkpoint is the newest there.
[[nodiscard]] Checkpoint open_checkpoint(const std::string& directory);

// The model that a checkpoint is of. Throws FileError where its manifest does not say.
[[nodiscard]] ModelConfig checkpoint_model(const Checkpoint& checkpoint);

// Throws FileError, naming the first setting or tensor, unless the checkpoint holds the weights of
// this model: the same function (dropout and recomputation aside) and exactly its tensors.
void require_model(const Checkpoint& checkpoint, const ModelConfig& config);

// Reads weights/<name>, or the part of it that this rank holds, into every parameter and refreshes
// the copies. REQUIRES: require_model did not throw; the checkpoint was verified.
void load_weights(StreamView stream, Checkpoint& checkpoint, Parameters& parameters);

// Reads the file of the tokenizer that was saved with the weights; nothing where there is none.
[[nodiscard]] std::optional<StoredTokenizer> stored_tokenizer(const Checkpoint& checkpoint);

// The tokenizer of a file. Throws FileError where it is damaged or has more tokens than a model.
[[nodiscard]] std::unique_ptr<Tokenizer> fitting_tokenizer(const StoredTokenizer& stored,
                                                           std::int64_t vocab);

// A model for inference: fp32, no gradients; parameters and codecs on one device.
struct InferenceModel {
  ModelConfig config{};
  std::unique_ptr<Parameters> parameters{};           // layers hold its address
  std::unique_ptr<Tokenizer> tokenizer{};             // null where the checkpoint has none
  std::optional<StoredTokenizer> stored_tokenizer{};  // the same as the checkpoint's file
  // What training's codecs did to activations, and a filter that does it; absent where it
  // compressed none.
  std::optional<ActivationCompression> activation_compression{};
  std::unique_ptr<BoundaryFilter> activation_codecs{};
};

[[nodiscard]] InferenceModel load_inference_model(const std::string& checkpoint_directory,
                                                  const Workers& workers);

}  // namespace slackline
