#pragma once

#include <cstdint>
#include <vector>

#include "core/json_reader.h"
#include "model/model_config.h"

namespace slackline {

enum class ScheduleName { gpipe, one_f_one_b, interleaved, zb_h1 };
enum class DataStrategy { replicate, zero1 };
enum class Transfers { asynchronous, blocking };
enum class EmbeddingSync { fused, separate };

// The "parallel" section: degrees of the mesh axes and how the step runs over them.
struct ParallelConfig {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  ScheduleName schedule = ScheduleName::one_f_one_b;
  int chunks = 1;                   // of layers per pipeline rank: virtual stages
  std::vector<int> stage_layers{};  // per virtual stage; empty: balanced by cost
  bool sequence_parallel = false;
  DataStrategy data_strategy = DataStrategy::replicate;
  Transfers transfers = Transfers::asynchronous;
  EmbeddingSync embedding_sync = EmbeddingSync::fused;

  [[nodiscard]] int num_ranks() const { return tensor * pipeline * data; }

  [[nodiscard]] int num_virtual_stages() const { return pipeline * chunks; }
};

// Sequences of a step, as far as the mesh has to fit them.
struct BatchSplit {
  std::int64_t global = 0;
  std::int64_t micro = 0;
};

// Reads the section and checks it against the model.
[[nodiscard]] ParallelConfig read_parallel_config(JsonReader section, const ModelConfig& model);

// Throws ConfigError where micro-batches do not fit: rows over tensor ranks, rounds of an
// interleaved schedule. REQUIRES: global is a multiple of micro x data.
void check_batch_fits(const ParallelConfig& config, const ModelConfig& model, BatchSplit batch);

}  // namespace slackline
