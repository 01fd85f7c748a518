#pragma once

#include <cstdint>
#include <string>

#include "compress/compress_config.h"
#include "core/comm/links/network_config.h"
#include "core/json_reader.h"
#include "core/tensor/device.h"
#include "data/data_config.h"
#include "model/model_config.h"
#include "optim/optimizer_config.h"
#include "optim/outer_config.h"
#include "parallel/mesh/rank_plan.h"

namespace slackline {

enum class OnNonFinite { stop, skip };

// The "run" section.
struct RunConfig {
  std::string dir;
  std::uint64_t seed = 1234;
  std::int64_t steps = 0;
  std::int64_t log_every = 1;
  std::int64_t eval_every = 0;    // 0: never
  std::int64_t eval_batches = 8;  // global batches per evaluation
  std::int64_t save_every = 0;    // 0: only the last step
  int keep = 2;                   // complete checkpoints kept
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  std::int64_t max_skips = 10;  // skipped steps in a row that end the run
  double stop_seconds = 0.3;    // how long a wait may last after SIGTERM
  bool cuda_graphs = false;     // passes are captured where they can be
  bool stream_waits = false;    // streams wait for copies on the host, where ranks are processes
};

// The "batch" section, in sequences: global = micro x micro-batches x data ranks.
struct BatchConfig {
  std::int64_t global = 0;
  std::int64_t micro = 0;  // a data rank's whole share unless given; under "auto" it is chosen
  bool micro_given = false;
};

// The "checkpoint" section.
struct CheckpointConfig {
  std::string init_from;    // weights only
  std::string resume_from;  // whole state of another run, into a new directory
};

// The "rehearsal" section: how the device of that name passes its time.
struct RehearsalConfig {
  std::string costs;   // a cost file; empty: assumed from floating-point operations
  double scale = 1.0;  // divides bytes of messages and speeds of links
};

// The whole config, read and checked across sections.
struct TrainConfig {
  RunConfig run;
  Device device = Device::cpu;
  DType precision = DType::f32;
  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  ParallelConfig parallel;
  OptimizerConfig optimizer;
  OuterConfig outer;
  CompressConfig compress;
  CheckpointConfig checkpoint;
  NetworkConfig network;
  RehearsalConfig rehearsal;
  bool trace = false;       // write trace.json
  bool check_sync = false;  // debug.check_sync: compare replicated weights after every step

  // How many micro-batches one data rank has in a step.
  [[nodiscard]] std::int64_t num_micro_batches() const {
    return batch.global / (batch.micro * parallel.data);
  }

  // What a rehearsal divides messages and speeds of links by.
  [[nodiscard]] double message_scale() const {
    return device == Device::rehearsal ? rehearsal.scale : 1.0;
  }

  // What ranks that step together train: all of them, or one worker's.
  [[nodiscard]] MeshJob mesh_job() const {
    return {.model = model,
            .parallel = parallel.of_worker(),
            .precision = precision,
            .device = device,
            .micro_batch = micro_shape(),
            .num_micro_batches = static_cast<int>(num_micro_batches())};
  }

  [[nodiscard]] BatchShape micro_shape() const { return {.B = batch.micro, .T = model.sequence}; }
};

// Reads every key of a config; throws ConfigError at the first violation. Afterwards
// document.resolved() is the config with all defaults.
[[nodiscard]] TrainConfig read_train_config(JsonReader document);

// Refuses a device for which this program was not built (ConfigError). To be asked before training
// alone: any program reads, plans and reports what another one trains.
void require_built(Device device);

}  // namespace slackline
