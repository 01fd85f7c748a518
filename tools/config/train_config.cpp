#include "tools/config/train_config.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/cuda/cuda_device.h"
#include "core/kernels/attention/attention.h"
#include "data/dataset.h"
#include "model/parameter_table.h"
#include "parallel/sync/outer_plan.h"
#include "tools/plan/sum_codecs.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 2> kOnNonFinite = {"stop", "skip"};
constexpr std::array<std::string_view, 3> kDevices = {
    name_of(Device::cpu), name_of(Device::cuda), name_of(Device::rehearsal)};
constexpr std::array<std::string_view, 2> kPrecisions = {"fp32", "bf16"};
constexpr std::int64_t kMaxCount = std::int64_t{1} << 40U;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 30U;       // so that micro-batches fit an int
constexpr double kLongestStop = 86400.0;                         // seconds
constexpr std::int64_t kMaxSeed = (std::int64_t{1} << 32U) - 1;  // of NumPy's legacy generator

RunConfig read_run_config(JsonReader section) {
  RunConfig run;
  run.dir = section.string("dir");
  if (run.dir.empty()) {
    section.fail("dir", "must name a directory");
  }
  run.seed = static_cast<std::uint64_t>(
      section.integer("seed", {.default_value = 1234, .min = 0, .max = kMaxSeed}));
  run.steps = section.integer("steps", {.min = 1, .max = kMaxCount});
  run.log_every = section.integer("log_every", {.default_value = 1, .min = 1, .max = kMaxCount});
  run.eval_every = section.integer("eval_every", {.default_value = 0, .min = 0, .max = kMaxCount});
  run.eval_batches =
      section.integer("eval_batches", {.default_value = 8, .min = 1, .max = kMaxCount});
  run.save_every = section.integer("save_every", {.default_value = 0, .min = 0, .max = kMaxCount});
  run.keep = static_cast<int>(section.integer("keep", {.default_value = 2, .min = 1, .max = 1000}));
  run.on_nonfinite = static_cast<OnNonFinite>(section.choice("on_nonfinite", kOnNonFinite, 0));
  run.stop_seconds = section.number(
      "stop_seconds", {.default_value = run.stop_seconds, .min = 0.0, .max = kLongestStop});
  run.max_skips = section.integer("max_skips", {.default_value = 10, .min = 1, .max = kMaxCount});
  run.cuda_graphs = section.boolean("cuda_graphs", false);
  run.stream_waits = section.boolean("stream_waits", false);
  section.finish();
  return run;
}

// Refuses what no machine holds before sizes are multiplied further.
void check_sizes(const JsonReader& model, const TrainConfig& config) {
  constexpr double kMost = 0x1p54;  // elements
  const ModelConfig& shape = config.model;
  const auto text = [&](double elements, const char* of) {
    return fmt::format(
        "makes {:.1e} {}; must be at most {:.1e} with the other sizes", elements, of, kMost);
  };
  const double hidden = shape.hidden;
  const double layers = shape.layers;
  const double parameters = layers * hidden * (4.0 * hidden + 2.0 * shape.ffn) +
                            hidden * (2.0 * shape.vocab + shape.sequence);
  if (parameters > kMost) {
    model.fail("hidden", text(parameters, "parameters"));
  }
  const double tokens = static_cast<double>(config.batch.micro) * shape.sequence;
  const double widest = std::max(
      {3.0 * hidden, 1.0 * shape.ffn, 1.0 * shape.vocab, 1.0 * shape.sequence * shape.heads});
  const double activations = tokens * widest * (layers + 1.0);
  if (activations > kMost) {
    model.fail("sequence", text(activations, "activations of a micro-batch"));
  }
}

// The largest number up to `most` that divides `number`.
std::int64_t largest_divisor(std::int64_t number, std::int64_t most) {
  std::int64_t largest = 1;
  for (std::int64_t small = 1; small * small <= number; ++small) {
    for (const std::int64_t divisor : {small, number / small}) {
      if (number % small == 0 && divisor <= most) {
        largest = std::max(largest, divisor);
      }
    }
  }
  return largest;
}

// A micro-batch is a data rank's whole share of the global batch unless given. Where it is yet to
// be chosen it is the smallest of the choices, which fits memory if any does.
BatchConfig read_batch_config(JsonReader section,
                              const ParallelConfig& parallel,
                              const ModelConfig& model) {
  BatchConfig batch;
  batch.global = section.integer("global", {.min = 1, .max = kMaxBatch});
  const std::int64_t share = batch.global / parallel.data;
  if (share * parallel.data != batch.global) {
    section.fail("global",
                 fmt::format("must be a multiple of parallel.data = {}; nearest is {}",
                             parallel.data,
                             std::max<std::int64_t>(1, share) * parallel.data));
  }
  batch.micro_given = section.has("micro") || parallel.data == 1;
  const bool is_chosen = parallel.chooses_strategy && !batch.micro_given;
  std::vector<std::int64_t> choices;
  if (is_chosen) {
    choices = micro_batch_choices(parallel, model, batch.global);
  }
  batch.micro = section.integer(
      "micro",
      {.default_value = choices.empty() ? share : choices.front(), .min = 1, .max = batch.global});
  if (is_chosen) {
    section.leave_open("micro");
  }
  if (share % batch.micro != 0) {
    const std::int64_t nearest = largest_divisor(share, batch.micro);
    section.fail(
        "micro",
        parallel.data == 1
            ? fmt::format("must divide batch.global = {}; nearest is {}", batch.global, nearest)
            : fmt::format(
                  "must divide batch.global / parallel.data = {}; nearest is {}", share, nearest));
  }
  const std::int64_t stages = parallel.num_virtual_stages();
  if (share / batch.micro > kMostPasses / stages) {
    section.fail("micro",
                 fmt::format("makes {} micro-batches of {} stages each; micro-batches times stages "
                             "must be at most {}",
                             share / batch.micro,
                             stages,
                             kMostPasses));
  }
  section.finish();
  return batch;
}

CheckpointConfig read_checkpoint_config(JsonReader section) {
  CheckpointConfig checkpoint;
  checkpoint.init_from = section.string("init_from", "");
  checkpoint.resume_from = section.string("resume_from", "");
  if (!checkpoint.init_from.empty() && !checkpoint.resume_from.empty()) {
    section.fail("resume_from", "and checkpoint.init_from exclude each other; keep one");
  }
  section.finish();
  return checkpoint;
}

RehearsalConfig read_rehearsal_config(JsonReader section) {
  RehearsalConfig rehearsal;
  rehearsal.costs = section.string("costs", "");
  rehearsal.scale = section.number("scale", {.default_value = 1.0, .min = 1.0, .max = 1e9});
  section.finish();
  return rehearsal;
}

// Refuses a number of steps, or of batches to evaluate, with more samples than an order is made
// for.
void check_samples(const JsonReader& run, const TrainConfig& config) {
  const std::int64_t most = Dataset::kMaxSamples / config.batch.global;
  const std::int64_t eval_batches = config.run.eval_every > 0 ? config.run.eval_batches : 0;
  for (const auto& [key, batches] :
       {std::pair{"steps", config.run.steps}, std::pair{"eval_batches", eval_batches}}) {
    if (batches > most) {
      run.fail(key,
               fmt::format("x batch.global = {} must be at most {} samples; nearest is {}",
                           config.batch.global,
                           Dataset::kMaxSamples,
                           most));
    }
  }
}

// Refuses what every new run would refuse when it opens its data, whatever the data are. A
// rehearsal reads and evaluates nothing.
void check_data_use(const JsonReader& run, const TrainConfig& config) {
  if (config.device == Device::rehearsal) {
    return;
  }
  check_samples(run, config);
  if (config.run.eval_every > 0 && config.data.valid.empty() && config.data.split[1] == 0.0) {
    run.fail("eval_every", "needs data.valid, or a share of data.split for validation");
  }
}

// Refuses codecs on sums of gradients that a data strategy takes apart, as far as they are not
// built.
void check_coded_sums(const JsonReader& section, const TrainConfig& config) {
  const ParallelConfig parallel = config.parallel.of_worker();
  const DataStrategy& strategy = parallel.data_strategy;
  const CompressConfig& compress = config.compress;
  if (compress.policy == CompressionPolicy::none) {
    return;
  }
  const bool is_set = compress.sites.contains("embedding") ||
                      compress.candidates.contains("embedding") ||
                      std::ranges::find(compress.classes, "embedding", &ListedClasses::site) !=
                          compress.classes.end();
  if (is_set && !strategy.codes_table(parallel.pipeline)) {
    section.fail("embedding",
                 fmt::format(R"(is not built for the sums of parallel.data_strategy "{}"; use )"
                             R"("zero1", or leave the table plain)",
                             name_of(strategy)));
  }
}

// Whether each of so many fragments of the model has something to send.
bool fragments_are_full(const std::vector<ParameterSpec>& table, int count) {
  const std::vector<int> fragments = fragments_of(table, count);
  std::set<int> full;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].trained) {
      full.insert(fragments[i]);
    }
  }
  return std::ssize(full) == count;
}

void check_fragments(const JsonReader& section, const TrainConfig& config) {
  if (!config.outer.has_fragments()) {
    return;
  }
  const std::vector<ParameterSpec> table = parameter_table(config.model);
  const auto trained = std::ranges::count_if(table, &ParameterSpec::trained);
  int fitting = static_cast<int>(std::min<std::int64_t>(config.outer.fragments, trained));
  while (fitting > 1 &&
         (*config.outer.period % fitting != 0 || !fragments_are_full(table, fitting))) {
    --fitting;
  }
  if (fitting != config.outer.fragments) {
    section.fail("fragments",
                 fmt::format("leaves a fragment empty beside a parameter that is larger than one; "
                             "nearest is {}",
                             fitting));
  }
}

// Refuses what workers that train apart do not fit. Groups of a node are known at the run's start.
void check_outer(const JsonReader& section, const TrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.data == 1 || (parallel.group != 0 && parallel.num_groups() == 1)) {
    section.fail("method",
                 fmt::format("needs two groups of data ranks or more, each a worker, and "
                             "parallel.data = {} with parallel.group = {} makes one; nearest is "
                             "parallel.data = {}",
                             parallel.data,
                             parallel.data_ranks_of_group(),
                             2 * parallel.data_ranks_of_group()));
  }
  check_fragments(section, config);
  if (config.network.collectives == CollectivesWish::hierarchical) {
    section.fail("method",
                 "has no sums that go through groups of data ranks, which train apart; leave out "
                 "network.collectives");
  }
  if (config.compress.policy == CompressionPolicy::critical_path ||
      !config.compress.guard.max_error.empty()) {
    section.fail("method",
                 "is not built for a compression plan that the run changes (compress.policy "
                 R"("critical_path", compress.guard.max_error); use "list", "all" or "replay")");
  }
}

// Refuses collectives through groups where a config alone says that there are none. Groups that are
// not given are found on the nodes.
void check_collectives(const JsonReader& section, const TrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const bool may_have_groups = parallel.data > 1 && parallel.group == 0;
  if (config.network.collectives == CollectivesWish::hierarchical && !may_have_groups &&
      !parallel.has_groups_of_ranks()) {
    section.fail("collectives",
                 fmt::format(R"(needs several groups of several data ranks: parallel.data = {} in )"
                             R"(groups of {}; must be "auto" or "direct")",
                             parallel.data,
                             parallel.data_ranks_of_group()));
  }
}

// Kernels of a device have no room for wider heads.
void check_heads_fit(const JsonReader& model, const TrainConfig& config) {
  const int hidden = config.model.hidden;
  if (config.device != Device::cuda || hidden / config.model.heads <= kMostHeadColumnsOfDevice) {
    return;
  }
  int nearest = config.model.heads;
  while (hidden % nearest != 0 || hidden / nearest > kMostHeadColumnsOfDevice) {
    ++nearest;
  }
  model.fail(
      "heads",
      fmt::format("must leave at most {} columns a head where device is \"cuda\"; nearest is "
                  "{}",
                  kMostHeadColumnsOfDevice,
                  nearest));
}

}  // namespace

void require_built(Device device) {
  if (device == Device::cuda && !cuda::is_built()) {
    throw ConfigError("device: " + cuda::obstacle() + R"(; or use "cpu")");
  }
}

TrainConfig read_train_config(JsonReader document) {
  TrainConfig config;
  const JsonReader run = document.section("run");
  config.run = read_run_config(run);
  config.device = static_cast<Device>(document.choice("device", kDevices, 0));
  for (const auto& [key, is_on] : {std::pair("cuda_graphs", config.run.cuda_graphs),
                                   std::pair("stream_waits", config.run.stream_waits)}) {
    if (is_on && config.device != Device::cuda) {
      run.fail(key, R"(must be false where device is not "cuda"; leave it out)");
    }
  }
  config.precision = document.choice("precision", kPrecisions, 0) == 0 ? DType::f32 : DType::bf16;
  const JsonReader model = document.section("model");
  config.model = read_model_config(model);
  check_heads_fit(model, config);
  JsonReader data = document.section("data");
  config.data =
      read_data_config(data, config.run.eval_every > 0 ? kSplitForEvaluation : kWholeFiles);
  config.parallel = read_parallel_config(document.section("parallel"), config.model);
  if (config.run.cuda_graphs && config.parallel.data_strategy.shares_passes()) {
    run.fail("cuda_graphs",
             fmt::format(R"(must be false under parallel.data_strategy "{}", whose weights and )"
                         "gradients come and go with passes; leave it out",
                         name_of(config.parallel.data_strategy)));
  }
  config.batch = read_batch_config(document.section("batch"), config.parallel, config.model);
  check_batch_fits(
      config.parallel, config.model, {.global = config.batch.global, .micro = config.batch.micro});
  check_sizes(model, config);
  JsonReader optimizer = document.section("optimizer");
  config.optimizer = read_optimizer_config(optimizer);
  const JsonReader outer = document.section("outer");
  config.outer = read_outer_config(outer);
  config.parallel.groups_apart = config.outer.is_on();
  const JsonReader compress = document.section("compress");
  config.compress = read_compress_config(compress);
  check_coded_sums(compress, config);
  if (config.compress.codec_of_rounds() && !config.outer.is_on()) {
    compress.fail("outer", "the run has no rounds: outer.method is not set; remove it");
  }
  config.checkpoint = read_checkpoint_config(document.section("checkpoint"));
  if (!config.checkpoint.resume_from.empty()) {  // whose settings hold where this is silent
    optimizer.leave_open("decay_embeddings");
    data.leave_open("split");
  }
  const JsonReader network = document.section("network");
  config.network = read_network_config(network);
  if (config.outer.is_on()) {
    check_outer(outer, config);
  }
  if (config.network.transport != TransportWish::automatic && config.device != Device::cuda) {
    network.fail("transport", R"(must be "auto" where device is not "cuda"; leave it out)");
  }
  check_collectives(network, config);
  config.parallel.codes_sums = config.network.collectives != CollectivesWish::direct &&
                               codes_sums_by_levels(config.compress, config.model.hidden);
  config.trace = document.boolean("trace", false);
  JsonReader debug = document.section("debug");
  config.check_sync = debug.boolean("check_sync", false);
  if (config.check_sync && config.device == Device::rehearsal) {
    debug.fail("check_sync", "a rehearsal has no weights to compare; leave it out");
  }
  debug.finish();
  config.rehearsal = read_rehearsal_config(document.section("rehearsal"));
  check_data_use(run, config);
  document.finish();
  return config;
}

}  // namespace slackline
