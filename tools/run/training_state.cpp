#include "tools/run/training_state.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/joined_text.h"
#include "core/log.h"
#include "parallel/mesh/stage_split.h"
#include "tools/config/config_job.h"
#include "tools/infer/activation_compression.h"
#include "tools/infer/model_loader.h"
#include "tools/plan/compression_plans.h"
#include "tools/run/compression_state.h"
#include "tools/run/kept_settings.h"

namespace slackline {

namespace {

// The checkpoint to begin with and how much of it is taken.
std::pair<TrainingStart::Source, std::string> choose_source(const TrainConfig& config,
                                                            bool resume) {
  using Source = TrainingStart::Source;
  if (resume) {
    const std::string directory = RunDirectory(config.run.dir).checkpoints();
    if (const std::optional<std::string> latest = latest_checkpoint(directory)) {
      return {Source::checkpoint, *latest};
    }
    log_info(config.run.dir + ": no checkpoint to resume from, starting at step 1");
  }
  if (!config.checkpoint.resume_from.empty()) {
    return {Source::checkpoint, config.checkpoint.resume_from};
  }
  if (!config.checkpoint.init_from.empty()) {
    return {Source::weights, config.checkpoint.init_from};
  }
  return {Source::initial_values, ""};
}

// How many layers each virtual stage has, in order.
std::vector<int> layers_of_stages(const TrainConfig& config) {
  std::vector<int> layers;
  for (const ChunkSlice& stage : split_layers(config.model, config.parallel)) {
    layers.push_back(stage.num_layers());
  }
  return layers;
}

// Plans name boundaries by stages. Older checkpoints do not say how theirs were cut.
bool has_stages_of(const Checkpoint& checkpoint, const TrainConfig& config) {
  const nlohmann::json layout =
      nlohmann::json::parse(checkpoint.documents().layout, nullptr, false);
  const auto layers = layout.find("layers");
  return !layout.is_object() || layers == layout.end() || *layers == layers_of_stages(config);
}

// Opens the checkpoint that the run begins with, if there is one, and takes what it says.
void open_source(TrainConfig& config, bool resume, bool is_first_rank, TrainingStart& start) {
  const auto [source, path] = choose_source(config, resume);
  start.source = source;
  if (source == TrainingStart::Source::initial_values) {
    return;
  }
  start.checkpoint = open_checkpoint(path);
  if (source == TrainingStart::Source::weights) {
    require_model(*start.checkpoint, config.model);
    return;
  }
  const std::vector<std::string> older = keep_settings(*start.checkpoint, config);
  if (!older.empty() && is_first_rank) {
    log_info(fmt::format("{}: saved before these defaults changed; the run keeps those it had: {}",
                         path,
                         joined(older, ", ")));
  }
  require_same_run(*start.checkpoint, config);
  start.step = start.checkpoint->step();
  start.skips = start.checkpoint->skips();
  if (has_stages_of(*start.checkpoint, config)) {
    ResumedPlans resumed = resumed_plans(start.plans, start.checkpoint->documents().plan);
    start.plans = std::move(resumed.plans);
    start.codec_errors = std::move(resumed.errors);
  }
  nlohmann::ordered_json::parse(start.checkpoint->documents().data)["epochs"].get_to(start.order);
}

std::string data_document(const TrainingState& state) {
  const nlohmann::ordered_json document = {
      {"consumed_sequences", state.step * state.config.batch.global},
      {"epochs", state.train_data.order_state()},
      {"identity", nlohmann::ordered_json::parse(identity_json(state.config))},
      {"settings", nlohmann::ordered_json::parse(settings_json(state.config))}};
  return document.dump();
}

void add_plan(const TrainingState& state, CheckpointDocuments& documents) {
  const PlanFromStep* plan = state.model.channels().in_force();
  if (plan == nullptr) {
    return;
  }
  Channels& channels = state.model.channels();
  documents.plan = plan_document(*plan, channels.plans(), channels.errors());
  const std::optional<ActivationCompression> activations =
      activation_compression(plan->plan, state.config.mesh_job(), state.config.run.seed);
  if (activations) {
    documents.codec = activation_compression_json(*activations);
  }
}

// Data without a tokenizer is taken to be in the checkpoint's tokens, so that the checkpoints to
// come can still turn text into tokens.
void take_over_tokenizer(const Checkpoint& checkpoint, std::optional<StoredTokenizer>& of_data) {
  const std::optional<StoredTokenizer> stored = stored_tokenizer(checkpoint);
  if (of_data && stored) {
    require_same_tokenizer(*of_data, *stored);
  } else if (stored) {
    of_data = stored;
  }
}

// Where a part of a piece lies in the memory of its optimizer state.
LocalPlace place_of(const OptimizerPiece& piece, const ShardPart& part) {
  return {.shape = piece.parameter->shard.shape, .region = part.local, .first = piece.range.begin};
}

}  // namespace

TrainingStart open_training_start(TrainConfig& config,
                                  bool resume,
                                  const LinkSpeeds& links,
                                  RunDirectory* directory) {
  if (directory != nullptr) {
    directory->claim_existing();
    if (!resume) {
      directory->refuse_occupied();
    }
  }
  TrainingStart start{.plans = compression_plans(plan_job(config), links)};
  const bool is_first_rank = directory != nullptr;
  open_source(config, resume, is_first_rank, start);
  start.data = open_data(config.data, config.model.vocab, config.model.sequence);
  settle_weights(start.data, config);
  if (start.checkpoint) {
    take_over_tokenizer(*start.checkpoint, start.data.tokenizer);
  }
  return start;
}

void load_training_state(TrainingStart& start, MeshModel& model) {
  Checkpoint& checkpoint = *start.checkpoint;
  AdamwOptimizer& optimizer = model.optimizer();
  for (std::size_t i = 0; i < optimizer.tensors().size(); ++i) {
    const OptimizerPiece& piece = model.pieces()[i];
    for (const ShardPart& part : parts_of_range(piece.parameter->shard, piece.range)) {
      checkpoint.read_part("weights/" + piece.parameter->spec.name,
                           part.logical,
                           optimizer.tensors()[i].weight,
                           place_of(piece, part));
    }
  }
  model.publish_weights();
  if (start.source != TrainingStart::Source::checkpoint) {
    return;
  }
  for (const OptimizerPiece& piece : model.pieces()) {
    const std::string& name = piece.parameter->spec.name;
    for (const auto& [group, moment] : {std::pair{"adam_m/", optimizer.first_moment(name)},
                                        std::pair{"adam_v/", optimizer.second_moment(name)}}) {
      for (const ShardPart& part : parts_of_range(piece.parameter->shard, piece.range)) {
        checkpoint.read_part(group + name, part.logical, moment, place_of(piece, part));
      }
    }
  }
  optimizer.set_step_count(checkpoint.updates().value_or(start.step));
  start.stored_compression = stored_compression_state(checkpoint);
  model.channels().put_in_force(start.step);
  start.taken_compression = load_compression_state(checkpoint, model);
}

std::vector<CheckpointTensor> training_tensors(MeshModel& model) {
  std::vector<CheckpointTensor> tensors;
  const AdamwOptimizer& optimizer = model.optimizer();
  const std::vector<OptimizerPiece>& pieces = model.pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const OptimizerPiece& piece = pieces[i];
    if (!piece.saved) {
      continue;
    }
    const std::string& name = piece.parameter->spec.name;
    for (const auto& [group, data] : {std::pair{"weights/", optimizer.tensors()[i].weight},
                                      std::pair{"adam_m/", optimizer.first_moment(name)},
                                      std::pair{"adam_v/", optimizer.second_moment(name)}}) {
      for (const ShardPart& part : parts_of_range(piece.parameter->shard, piece.range)) {
        tensors.push_back({.name = group + name,
                           .data = data,
                           .start = part.logical.start,
                           .logical = piece.parameter->spec.shape,
                           .place = place_of(piece, part)});
      }
    }
  }
  return tensors;
}

CheckpointContents training_contents(const TrainingState& state) {
  CheckpointContents contents{
      .step = state.step, .updates = state.model.optimizer().step_count(), .skips = state.skips};
  contents.documents.model = model_config_json(state.config.model);
  contents.documents.data = data_document(state);
  contents.documents.rng = fmt::format(R"({{"seed": {}}})", state.config.run.seed);
  const ParallelConfig& parallel = state.config.parallel;
  contents.documents.layout = nlohmann::ordered_json{{"tensor", parallel.tensor},
                                                     {"pipeline", parallel.pipeline},
                                                     {"data", parallel.data},
                                                     {"layers", layers_of_stages(state.config)}}
                                  .dump();
  add_plan(state, contents.documents);
  if (state.tokenizer) {
    contents.documents.tokenizer = fmt::format(R"({{"file": "{}"}})", kTokenizerName);
    contents.files.emplace(kTokenizerName, state.tokenizer->json);
  }
  state.model.stream().synchronize();  // what is saved is read on the host
  contents.tensors = training_tensors(state.model);
  for (CheckpointTensor& tensor : compression_tensors(state.model)) {
    contents.tensors.push_back(std::move(tensor));
  }
  return contents;
}

}  // namespace slackline
