#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/contents.h"
#include "data/data_members.h"
#include "data/dataset.h"
#include "parallel/plan/compression_plan_json.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_loop.h"
#include "tools/config/train_config.h"
#include "tools/record/run_directory.h"

namespace slackline {

// Where a run begins: its opened data and the checkpoint it takes state from, all checked.
struct TrainingStart {
  enum class Source {
    initial_values,
    weights,     // checkpoint.init_from: weights only, step 0
    checkpoint,  // --resume or checkpoint.resume_from: the whole state
  };

  DataMembers data{};
  Source source = Source::initial_values;
  std::optional<Checkpoint> checkpoint{};
  std::int64_t step = 0;                // completed
  std::int64_t skips = 0;               // skipped steps in a row up to that one
  std::vector<MemberOrder> order{};     // of the training data, as the checkpoint stored it
  std::vector<std::string> contents{};  // of the training data; empty of an older checkpoint
  StoredPlans compression{};            // the config's, or what became of them
  // Names of compression state: what the checkpoint has, and what this rank took of it.
  std::vector<std::string> stored_compression{};
  std::vector<std::string> taken_compression{};
};

// Returns the checkpoint whose whole state a run takes; nothing where there is none. Looks for it
// alone: what is wrong with it is found when it is opened.
[[nodiscard]] std::optional<std::string> checkpoint_to_go_on_from(const TrainConfig& config,
                                                                  bool resume);

// Opens data and, where the config or `resume` asks for one, the checkpoint, and checks that they
// fit: files whole, same model, and on a resume everything that the state depends on
// (configs/README.md lists what may change). Decides what the config leaves open: on a resume as
// the checkpoint says. Throws before anything of the run is written. Rank 0 alone gives the run's
// directory, and looks whether another run or process occupies it, for it may be writing there when
// others still look; they give null.
// `links`, as far as they are known, are the same on all ranks.
[[nodiscard]] TrainingStart open_training_start(TrainConfig& config,
                                                bool resume,
                                                const LinkSpeeds& links,
                                                RunDirectory* directory);

// Fills this rank's part of the weights and, where the whole state is taken, of the moments, from
// start.checkpoint, whatever layout wrote it. Where ranks train in outer rounds (`outer`, else
// null) also of the state of these: as many workers go on as they were; other numbers of workers
// start from the anchor, with the mean of the moments. REQUIRES: source is not initial_values.
void load_training_state(TrainingStart& start, MeshModel& model, OuterLoop* outer = nullptr);

// The weights, moments and outer rounds (`outer`, or null) that this rank saves, so that each
// element is saved by one rank. Views.
[[nodiscard]] std::vector<CheckpointTensor> training_tensors(MeshModel& model,
                                                             OuterLoop* outer = nullptr);

// What this rank adds to a checkpoint of a training run.
struct TrainingState {
  const TrainConfig& config;
  MeshModel& model;
  OuterLoop* outer = nullptr;  // settled; null where all ranks step together
  const Dataset& train_data;
  const std::optional<StoredTokenizer>& tokenizer;
  std::int64_t step = 0;                      // completed
  std::int64_t skips = 0;                     // skipped steps in a row up to that one
  std::span<const WorkerProgress> workers{};  // where they train apart
};

// Views of the state; valid until it changes.
[[nodiscard]] CheckpointContents training_contents(const TrainingState& state);

}  // namespace slackline
