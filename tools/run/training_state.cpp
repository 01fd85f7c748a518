#include "tools/run/training_state.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/file_errors.h"
#include "core/joined_text.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/log.h"
#include "core/strict_json.h"
#include "data/formats/tokenizer_file.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/plan/activation_compression.h"
#include "tools/config/config_job.h"
#include "tools/infer/model_loader.h"
#include "tools/plan/compression_plans.h"
#include "tools/run/checkpoint_document.h"
#include "tools/run/checkpoint_parts.h"
#include "tools/run/compression_state.h"
#include "tools/run/kept_settings.h"
#include "tools/run/round_state.h"

namespace slackline {

namespace {

// Of each worker that trains apart; weights/ is the anchor then.
constexpr const char* kWorkerWeights = "outer/weights/";

// The checkpoint to begin with and how much of it is taken.
std::pair<TrainingStart::Source, std::string> choose_source(const TrainConfig& config,
                                                            bool resume) {
  using Source = TrainingStart::Source;
  if (resume) {
    const std::string directory = RunDirectory(config.run.dir).checkpoints();
    if (const std::optional<std::string> latest = latest_checkpoint(directory)) {
      return {Source::checkpoint, *latest};
    }
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

// The newest of the run's own.
Checkpoint opened_newest(const std::string& path) {
  try {
    return open_checkpoint(path);
  } catch (const FileError& problem) {
    throw FileError(with_hint(first_line(problem.what()),
                              fmt::format("move {} away, and --resume goes on from the checkpoint "
                                          "before it, if there is one",
                                          path)));
  }
}

// Opens the checkpoint that the run begins with, if there is one, and takes what it says.
void open_source(TrainConfig& config, bool resume, bool is_first_rank, TrainingStart& start) {
  const auto [source, path] = choose_source(config, resume);
  start.source = source;
  if (resume && source != TrainingStart::Source::checkpoint) {
    log_info(config.run.dir + ": no checkpoint to resume from, starting at step 1");
  }
  if (source == TrainingStart::Source::initial_values) {
    return;
  }
  const bool is_own = resume && path.starts_with(RunDirectory(config.run.dir).checkpoints());
  start.checkpoint = is_own ? opened_newest(path) : open_checkpoint(path);
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
    start.compression = reading(fmt::format("{}/{}", path, kManifestName), [&] {
      return resumed_plans(
          start.compression.plans, start.checkpoint->documents().plan, plan_job(config));
    });
  }
  const std::string& rounds = start.checkpoint->documents().outer;
  reading_document(*start.checkpoint, "outer", [&] {
    const int workers = OuterLoop::workers_of(rounds);
    if (workers > 0 && config.outer.is_on() && workers == config.parallel.num_workers()) {
      OuterLoop::require_goes_on(config.outer, rounds, start.step);
    }
  });
  reading_document(*start.checkpoint, "data", [&] {
    const auto data = parse_strict_json(start.checkpoint->documents().data);
    data.at("epochs").get_to(start.order);
    start.contents = data.value("contents", start.contents);
    if (!start.contents.empty() && start.contents.size() != start.order.size()) {
      throw FileError(fmt::format("data: contents: must be of {} data sets, as epochs is; got {}",
                                  start.order.size(),
                                  start.contents.size()));
    }
  });
}

std::string data_document(const TrainingState& state) {
  const nlohmann::ordered_json document = {
      {"consumed_sequences", state.step * state.config.batch.global},
      {"epochs", state.train_data.order_state()},
      {"contents", state.train_data.contents()},
      {"identity", identity_json(state.config)},
      {"settings", settings_json(state.config)}};
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

// Checkpoints keep it, and nothing that reads them takes one that is damaged or larger than the
// model. A run that was begun with a larger one goes on.
void require_readable(const StoredTokenizer& stored, const TrainingStart& start, int vocab) {
  start.source == TrainingStart::Source::checkpoint
      ? static_cast<void>(tokenizer_from_json(stored.json, stored.path))
      : static_cast<void>(fitting_tokenizer(stored, vocab));
}

// Reads weights, which are f32 in the checkpoint, and publishes them: what a worker has trained
// apart, or, without a worker, all weights.
void load_weights(Checkpoint& checkpoint,
                  const std::string& group,
                  std::optional<std::int64_t> worker,
                  MeshModel& model) {
  for (std::size_t i = 0; i < model.pieces().size(); ++i) {
    const OptimizerPiece& piece = model.pieces()[i];
    const Tensor& weight = model.optimizer().tensors()[i].weight;
    if (worker && !piece.parameter->spec.trained) {
      continue;
    }
    if (weight.dtype() == DType::f32) {
      read_parts(checkpoint, group, worker, piece, piece.range, weight);
      continue;
    }
    const Buffer buffer =
        make_buffer("weights", DType::f32, weight.shape(), backing_of(weight.device()));
    const Tensor exact = buffer.view(DType::f32, weight.shape());
    read_parts(checkpoint, group, worker, piece, piece.range, exact);
    cast(model.stream(), exact, weight);
    model.stream().synchronize();
  }
  model.publish_weights();
}

// The mean over workers, where others made the checkpoint than go on.
void read_mean(Checkpoint& checkpoint,
               const std::string& group,
               int workers,
               const OptimizerPiece& piece,
               const Tensor& memory,
               StreamView stream) {
  const Buffer one = make_buffer("moments of a worker", DType::f32, memory.shape());
  const Buffer sum = make_buffer("sum of moments", DType::f32, memory.shape());
  const Tensor read = one.view(DType::f32, memory.shape());
  const Tensor all = sum.view(DType::f32, memory.shape());
  Stream host({.name = "moments"});
  fill_zero(host, all);
  for (int worker = 0; worker < workers; ++worker) {
    read_parts(checkpoint, group, worker, piece, piece.range, read);
    accumulate(host, read, all);
  }
  scale(host, all, 1.0F / static_cast<float>(workers), all);
  cast(stream, all, memory);
}

// `workers` have made the checkpoint; 0: ranks that all step together.
void load_moments(Checkpoint& checkpoint, int workers, MeshModel& model) {
  const AdamwOptimizer& optimizer = model.optimizer();
  const bool takes_mean = workers > 0 && workers != model.groups().num_workers();
  const auto worker =
      workers > 0 ? std::optional<std::int64_t>(model.groups().worker_index()) : std::nullopt;
  for (const OptimizerPiece& piece : model.pieces()) {
    const std::string& name = piece.parameter->spec.name;
    if (!piece.parameter->spec.trained) {
      continue;
    }
    for (const auto& [group, moment] : {std::pair{"adam_m/", optimizer.first_moment(name)},
                                        std::pair{"adam_v/", optimizer.second_moment(name)}}) {
      if (takes_mean) {
        read_mean(checkpoint, group, workers, piece, moment, model.stream());
      } else {
        read_parts(checkpoint, group, worker, piece, piece.range, moment);
      }
    }
  }
}

}  // namespace

std::optional<std::string> checkpoint_to_go_on_from(const TrainConfig& config, bool resume) {
  const auto [source, path] = choose_source(config, resume);
  return source == TrainingStart::Source::checkpoint ? std::make_optional(path) : std::nullopt;
}

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
  TrainingStart start{.compression = {.plans = compression_plans(plan_job(config), links)}};
  const bool is_first_rank = directory != nullptr;
  open_source(config, resume, is_first_rank, start);
  start.data = open_data(config.data, config.model.vocab, config.model.sequence);
  settle_weights(start.data, config);
  if (start.checkpoint) {
    take_over_tokenizer(*start.checkpoint, start.data.tokenizer);
  }
  if (start.data.tokenizer) {
    require_readable(*start.data.tokenizer, start, config.model.vocab);
  }
  return start;
}

void load_training_state(TrainingStart& start, MeshModel& model, OuterLoop* outer) {
  Checkpoint& checkpoint = *start.checkpoint;
  const std::string& rounds = checkpoint.documents().outer;
  const int workers =
      reading_document(checkpoint, "outer", [&] { return OuterLoop::workers_of(rounds); });
  const bool goes_on = start.source == TrainingStart::Source::checkpoint;
  const bool same_workers = goes_on && outer != nullptr && workers == model.groups().num_workers();
  load_weights(checkpoint, "weights/", std::nullopt, model);
  if (outer != nullptr) {
    outer->restart(start.step);
  }
  if (!goes_on) {
    return;
  }
  load_moments(checkpoint, workers, model);
  model.optimizer().set_step_count(checkpoint.updates().value_or(start.step));
  if (same_workers) {
    load_weights(checkpoint, kWorkerWeights, model.groups().worker_index(), model);
    const auto own = reading_document(checkpoint, "outer", [&] {
      return OuterLoop::progress_of(rounds, model.groups().worker_index());
    });
    if (own) {
      model.optimizer().set_step_count(own->updates);
      start.skips = own->skips;
    }
    load_round_state(checkpoint, model.groups().worker_index(), *outer);
  } else if (workers > 0) {
    take_over_rounds(checkpoint, model, outer);
  }
  start.stored_compression = stored_compression_state(checkpoint);
  model.channels().put_in_force(start.step);
  if (same_workers || (workers == 0 && outer == nullptr)) {
    start.taken_compression = load_compression_state(checkpoint, model, outer);
  }
}

std::vector<CheckpointTensor> training_tensors(MeshModel& model, OuterLoop* outer) {
  std::vector<CheckpointTensor> tensors;
  const AdamwOptimizer& optimizer = model.optimizer();
  const auto worker =
      outer != nullptr ? std::optional<std::int64_t>(model.groups().worker_index()) : std::nullopt;
  for (std::size_t i = 0; i < model.pieces().size(); ++i) {
    const OptimizerPiece& piece = model.pieces()[i];
    const std::string& name = piece.parameter->spec.name;
    const Tensor& weight = optimizer.tensors()[i].weight;
    if (!piece.saved) {
      continue;
    }
    if (piece.parameter->spec.trained) {
      add_parts(worker ? kWorkerWeights : "weights/", worker, piece, piece.range, weight, tensors);
      add_parts("adam_m/", worker, piece, piece.range, optimizer.first_moment(name), tensors);
      add_parts("adam_v/", worker, piece, piece.range, optimizer.second_moment(name), tensors);
    } else if (worker.value_or(0) == 0) {  // all workers have the same
      add_parts("weights/", std::nullopt, piece, piece.range, weight, tensors);
    }
  }
  if (outer != nullptr) {
    add_round_state(*outer, model.groups().worker_index(), tensors);
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
  contents.documents.layout =
      nlohmann::ordered_json{{"tensor", parallel.tensor},
                             {"pipeline", parallel.pipeline},
                             {"data", parallel.data},
                             {"group", parallel.group},
                             {"data_strategy", letters_of(parallel.data_strategy)},
                             {"micro", state.config.batch.micro},
                             {"layers", layers_of_stages(state.config)}}
          .dump();
  add_plan(state, contents.documents);
  if (state.tokenizer) {
    contents.documents.tokenizer = fmt::format(R"({{"file": "{}"}})", kTokenizerName);
    contents.files.emplace(kTokenizerName, state.tokenizer->json);
  }
  state.model.stream().synchronize();  // what is saved is read on the host
  contents.tensors = training_tensors(state.model, state.outer);
  if (state.outer != nullptr) {
    contents.documents.outer = state.outer->state_text(state.workers);
  }
  for (CheckpointTensor& tensor : compression_tensors(state.model, state.outer)) {
    contents.tensors.push_back(std::move(tensor));
  }
  return contents;
}

}  // namespace slackline
