#pragma once

#include "core/json_reader.h"

namespace slackline {

enum class Schedule { gpipe, one_f_one_b, interleaved, zb_h1 };
enum class DataStrategy { replicate, zero1 };
enum class Transfers { asynchronous, blocking };
enum class EmbeddingSync { fused, separate };

// The "parallel" section: degrees of the mesh axes and how the step runs over them.
struct ParallelConfig {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  Schedule schedule = Schedule::one_f_one_b;
  DataStrategy data_strategy = DataStrategy::replicate;
  Transfers transfers = Transfers::asynchronous;
  EmbeddingSync embedding_sync = EmbeddingSync::fused;
};

// `layers` is the model's. One rank is what is built: degrees above 1, and values that only mean
// something with several ranks, are refused by name.
[[nodiscard]] ParallelConfig read_parallel_config(JsonReader section, int layers);

}  // namespace slackline
