#include "tools/plan/step_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/thread_pool.h"
#include "model/parameter_table.h"
#include "parallel/mesh/mesh.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/predict/byte_inputs.h"
#include "parallel/predict/class_bytes.h"
#include "parallel/predict/class_costs.h"
#include "parallel/schedule/slots.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/cost_file.h"

namespace slackline {

namespace {

using schedule::AxisBytes;
using schedule::Bytes;
using schedule::Phase;
using schedule::Seconds;
using schedule::Site;

constexpr double kGiga = 1e9;

std::string assumption() {
  const AssumedSpeeds speeds;
  return fmt::format("assumed {:g} GFLOP/s and {:g} GB/s of memory per rank",
                     speeds.flops_per_second / kGiga,
                     speeds.bytes_per_second / kGiga);
}

Cluster require_fits(Cluster cluster, const std::string& path, int num_ranks) {
  if (cluster.num_devices() < num_ranks) {
    throw ConfigError(fmt::format(
        "{}: nodes: must have a device for each of the config's {} ranks (parallel.tensor x "
        "pipeline x data); got {}",
        path,
        num_ranks,
        cluster.num_devices()));
  }
  return cluster;
}

struct KnownLinks {
  LinkSpeeds links{};
  std::string from{};
};

// Of the cluster that is asked for, else of the one that a run would emulate.
KnownLinks known_links(const PlanJob& job, const StepPlanFiles& files) {
  const std::string& emulated = job.network.links;
  const int num_ranks = job.mesh.parallel.num_ranks();
  if (!files.cluster.empty()) {
    return {require_fits(read_cluster(files.cluster), files.cluster, num_ranks), files.cluster};
  }
  if (job.network.emulates()) {
    return {require_fits(read_emulated_cluster(emulated), emulated, num_ranks), emulated};
  }
  return {};
}

// The data axis' bytes of a virtual stage, over all ranks: gradients, and weights that come back.
struct DataBytes {
  std::size_t gradients = 0;
  std::size_t weights = 0;
};

DataBytes data_bytes(const schedule::ByteInputs& inputs, int stage) {
  std::size_t bytes = schedule::stage_bytes(inputs, stage).data.value;
  const int last = static_cast<int>(inputs.layers.size()) - 1;
  if (stage == 0 || stage == last) {
    bytes += schedule::table_sync_bytes(inputs).data.value / 2;  // p > 1, or there is none
  }
  const bool sharded = inputs.store == schedule::GradientStore::sharded;
  return {.gradients = sharded ? bytes / 2 : bytes, .weights = sharded ? bytes / 2 : 0};
}

std::size_t class_bytes(const schedule::ClassSlack& row, const schedule::ByteInputs& inputs) {
  switch (row.members.site) {
    case Site::pipeline_forward:
    case Site::pipeline_backward:
      return row.bytes.value * static_cast<std::size_t>(inputs.d);
    case Site::data_gradient:
      return data_bytes(inputs, row.members.stage).gradients;
    case Site::parameter_gather:
      return data_bytes(inputs, row.members.stage).weights;
    case Site::embedding:
      break;
  }
  return schedule::table_sync_bytes(inputs).embedding.value;
}

std::vector<PlannedClass> timed_classes(const std::vector<schedule::ClassSlack>& slacks,
                                        const schedule::ByteInputs& inputs) {
  std::vector<PlannedClass> classes;
  classes.reserve(slacks.size());
  for (const schedule::ClassSlack& row : slacks) {
    const std::size_t bytes = class_bytes(row, inputs);
    classes.push_back({.members = row.members,
                       .raw_bytes = bytes,
                       .sent_bytes = bytes,
                       .raw = (1.0 / row.count) * row.seconds,
                       .slack = std::max(row.slack, Seconds{}),
                       .reason = "not compressible"});
  }
  return classes;
}

PlannedClass& row_of(std::vector<PlannedClass>& classes, const schedule::TransferClass& members) {
  const auto found = std::find_if(classes.begin(), classes.end(), [&](const PlannedClass& row) {
    return row.members == members;
  });
  return found != classes.end() ? *found : classes.emplace_back(PlannedClass{.members = members});
}

// The formulas know a stage's gradients as one sum. Its classes have the parts that their buckets
// have; so has a tied table that one pipeline rank holds, which is reduced with the others.
void part_gradients(std::vector<PlannedClass>& classes, const MeshJob& job) {
  if (job.parallel.data == 1) {
    return;
  }
  if (job.parallel.pipeline == 1 && job.model.tie_embeddings) {
    row_of(classes, {.site = Site::embedding, .stage = 0, .phase = Phase::tail}).raw_bytes = 0;
  }
  const auto is_part = [&](const PlannedClass& row) {
    return row.members.site == Site::data_gradient ||
           (row.members.site == Site::embedding && job.parallel.pipeline == 1);
  };
  CompressionPlan rows;
  std::map<int, std::size_t> left;     // of each stage's sum
  std::map<int, std::size_t> of_rows;  // all buckets of its classes that have no part yet
  for (const PlannedClass& row : classes) {
    if (is_part(row)) {
      rows.classes.push_back({.members = row.members});
      std::size_t& sum = left[row.members.stage];
      sum = std::max(sum, row.raw_bytes);
    }
  }
  std::map<schedule::TransferClass, std::size_t> parts;
  for (const ClassBytes& bytes : class_bytes(job, rows)) {
    parts[bytes.members] = bytes.raw;
    of_rows[bytes.members.stage] += bytes.raw;
  }
  for (PlannedClass& row : classes) {
    if (!is_part(row)) {
      continue;
    }
    std::size_t& sum = left[row.members.stage];
    std::size_t& buckets = of_rows[row.members.stage];
    const std::size_t part = parts[row.members];
    const double share =
        buckets == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(buckets);
    row.raw_bytes =
        part == buckets ? sum : static_cast<std::size_t>(share * static_cast<double>(sum));
    row.sent_bytes = row.raw_bytes;
    sum -= row.raw_bytes;
    buckets -= part;
  }
}

// What the timeline knows of classes, with what a plan makes of them.
std::vector<PlannedClass> planned_classes(std::vector<PlannedClass> classes,
                                          const MeshJob& job,
                                          const CompressionPlan& plan,
                                          const std::optional<StepCosts>& measured,
                                          const StepCosts& costs) {
  const std::vector<ClassBytes> bytes = class_bytes(job, plan);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    PlannedClass& planned = row_of(classes, bytes[i].members);
    planned.codec = plan.classes[i].codec;
    planned.reason = plan.classes[i].reason;
    planned.sent_bytes = planned.raw_bytes - bytes[i].raw + bytes[i].sent;
    const auto seconds = measured ? codec_seconds(bytes[i], *measured) : std::nullopt;
    if (seconds && !bytes[i].compressed.empty()) {
      planned.encode = seconds->encode;
      planned.decode = seconds->decode;
    }
    planned.cost = class_cost(bytes[i], codec_seconds_or_assumed(bytes[i], costs));
  }
  return classes;
}

Bytes& axis_of(AxisBytes& bytes, const MeshJob& job, Site site) {
  switch (site) {
    case Site::pipeline_forward:
    case Site::pipeline_backward:
      return bytes.pipeline;
    case Site::data_gradient:
    case Site::parameter_gather:
      return bytes.data;
    case Site::embedding:
      break;
  }
  return job.parallel.pipeline > 1 ? bytes.embedding : bytes.data;
}

// What all ranks at one place of the pipeline send.
AxisBytes place_bytes(const schedule::ByteInputs& inputs, int place) {
  AxisBytes sum;
  const int stages = static_cast<int>(inputs.layers.size());
  for (int stage = place; stage < stages; stage += inputs.p) {
    const AxisBytes bytes = schedule::stage_bytes(inputs, stage);
    sum.tensor += bytes.tensor;
    sum.pipeline += bytes.pipeline;
    sum.data += bytes.data;
  }
  if (place == 0 || place == inputs.p - 1) {
    const AxisBytes table = schedule::table_sync_bytes(inputs);
    sum.data += {table.data.value / 2};
    sum.embedding = {table.embedding.value / 2};
  }
  return sum;
}

AxisBytes divided(const AxisBytes& bytes, int ranks) {
  const auto by = static_cast<std::size_t>(ranks);
  return {.tensor = {bytes.tensor.value / by},
          .pipeline = {bytes.pipeline.value / by},
          .data = {bytes.data.value / by},
          .embedding = {bytes.embedding.value / by}};
}

void plan_ranks(StepPlan& plan,
                const PlanHistory& plans,
                const schedule::ByteInputs& inputs,
                const LinkSpeeds& links) {
  const ParallelConfig& parallel = plan.job.mesh.parallel;
  const Mesh mesh = make_mesh(parallel);
  const std::vector<int> nodes = links ? links->nodes_of_ranks(mesh.size())
                                       : std::vector<int>(static_cast<std::size_t>(mesh.size()), 0);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const MeshPlace place{.tensor = mesh.coordinate(rank, "tensor"),
                          .data = mesh.coordinate(rank, "data"),
                          .pipeline = mesh.coordinate(rank, "pipeline")};
    const int node = nodes[static_cast<std::size_t>(rank)];
    const auto ranks_on_node = static_cast<int>(std::count(nodes.begin(), nodes.end(), node));
    std::vector<MemoryItem> memory =
        memory_plan(plan.job, place, plans, default_num_threads(ranks_on_node));
    plan.ranks.push_back(
        {.place = place,
         .node = node,
         .memory_bytes = total_bytes(memory, plan.job.mesh.device),
         .sent = divided(place_bytes(inputs, place.pipeline), parallel.tensor * parallel.data)});
    if (place.tensor == 0 && place.data == 0) {
      plan.memory.push_back(std::move(memory));
    }
  }
}

}  // namespace

LinkSpeeds links_of_run(const NetworkConfig& network, const LinkSpeeds& probed) {
  return network.emulates() ? read_emulated_cluster(network.links) : probed;
}

StepPlan make_step_plan(const PlanJob& planned,
                        const std::optional<StepCosts>& costs,
                        const LinkSpeeds& links,
                        const std::optional<PlanHistory>& given_plans) {
  const MeshJob& job = planned.mesh;
  StepCosts known = costs ? *costs : assumed_costs(job.model, {});
  if (job.device == Device::rehearsal) {
    known.codecs_take_compute = false;  // waits take none of each other's time
  }
  const PlanHistory plans = given_plans ? *given_plans : expected_plans(planned, known, links);
  const schedule::ByteInputs inputs = byte_inputs(job);
  StepPlan plan{.job = planned,
                .parameters = num_parameters(job.model),
                .tokens_per_step = job.global_batch() * job.model.sequence,
                .flops = flops_per_token(job.model),
                .stages = split_layers(job.model, job.parallel),
                .schedule = make_rank_plan(job, {}).executor.schedule,
                .costs_from = costs ? "measured" : assumption(),
                .links_from = links ? "given" : "none: transfers take no time",
                .has_measured_costs = costs.has_value(),
                .costs = known,
                .links = links,
                .plans = plans,
                .step_bytes = schedule::step_bytes(inputs)};
  schedule::CostModel model = cost_model(job, known, links);
  const schedule::Timeline plain = schedule::make_timeline(plan.schedule, model);
  plan.slacks = schedule::class_slacks(plain);
  std::vector<PlannedClass> classes = timed_classes(plan.slacks, inputs);
  part_gradients(classes, job);
  for (const PlanFromStep& row : plans) {
    PlannedClasses& of_step = plan.compression.emplace_back();
    of_step.from_step = row.from_step;
    of_step.classes = planned_classes(classes, job, row.plan, costs, known);
    for (const PlannedClass& members : of_step.classes) {
      model.compressed[members.members] = members.cost;
    }
    plan.timeline = schedule::make_timeline(plan.schedule, model);
    of_step.step = plan.timeline.step;
  }
  for (const PlannedClass& row : plan.classes()) {
    Bytes& bytes = axis_of(plan.step_bytes, job, row.members.site);
    bytes.value = bytes.value - row.raw_bytes + row.sent_bytes;
  }
  plan.slots = schedule::input_slots(plan.schedule).num_slots;
  plan_ranks(plan, plans, inputs, links);
  return plan;
}

StepPlan read_step_plan(const PlanJob& job,
                        const StepPlanFiles& files,
                        const LinkSpeeds& probed,
                        const std::optional<PlanHistory>& plans) {
  std::string costs_path = files.costs;
  if (costs_path.empty() && job.mesh.device == Device::rehearsal) {
    costs_path = job.rehearsal_costs;
  }
  std::optional<StepCosts> costs;
  if (!costs_path.empty()) {
    costs = read_cost_file(costs_path);
  }
  const KnownLinks known = probed ? KnownLinks{probed, "probed"} : known_links(job, files);
  const bool measured = !known.links && costs;
  const LinkSpeeds links =
      measured ? measured_links(*costs, job.mesh.parallel.num_ranks()) : known.links;
  if (!plans) {
    static_cast<void>(compression_plans(job));  // refuses what does not fit the layout
  }
  try {
    StepPlan plan = make_step_plan(job, costs, links, plans);
    plan.costs_from = costs ? costs_path : plan.costs_from;
    if (links) {
      plan.links_from = measured ? costs_path : known.from;
    }
    return plan;
  } catch (const ConfigError& problem) {
    throw ConfigError(costs_path + ": " + problem.what());  // only costs can fail to fit here
  }
}

}  // namespace slackline
