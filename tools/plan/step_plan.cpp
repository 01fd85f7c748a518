#include "tools/plan/step_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_errors.h"
#include "model/parameter_table.h"
#include "parallel/mesh/mesh.h"
#include "parallel/mesh/stage_split.h"
#include "parallel/plan/class_bytes.h"
#include "parallel/plan/class_costs.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/predict/timeline/slack.h"
#include "parallel/schedule/slots.h"
#include "parallel/sync/outer_plan.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/strategy_ranking.h"

namespace slackline {

namespace {

using schedule::Seconds;

constexpr double kGiga = 1e9;

std::string assumption(const AssumedSpeeds& speeds) {
  return fmt::format("assumed {:g} GFLOP/s and {:g} GB/s of memory per rank{}",
                     speeds.flops_per_second / kGiga,
                     speeds.bytes_per_second / kGiga,
                     speeds == AssumedSpeeds{} ? " (a core of a processor)" : "");
}

// Returns costs as given, else as the devices of the cluster are taken to compute.
StepCosts known_costs(const MeshJob& job,
                      const std::optional<StepCosts>& given,
                      const LinkSpeeds& links) {
  const AssumedSpeeds speeds = assumed_speeds(links, job.precision);
  StepCosts costs = given.value_or(assumed_costs(job.model, speeds));
  costs.speeds = speeds;
  return costs;
}

struct KnownLinks {
  LinkSpeeds links{};
  std::string from{};
};

// Reads the links of the cluster that is asked for, else of the one that a run would emulate.
KnownLinks known_links(const PlanJob& job, const StepPlanFiles& files) {
  KnownLinks known{.from = files.cluster.empty() ? job.network.links : files.cluster};
  if (!files.cluster.empty()) {
    known.links = read_cluster(files.cluster);
  } else if (job.network.emulates()) {
    known.links = links_of_run(job.network, job.mesh.device, {});
  }
  if (known.links) {
    require_fits(*known.links, known.from, job);
  }
  return known;
}

// What all ranks send of each class, weights that zero1 gathers among them.
std::map<schedule::TransferClass, std::size_t> raw_bytes(const MeshLists& lists) {
  const MeshJob& job = lists.job();
  std::map<schedule::TransferClass, std::size_t> classes;
  for (int pipeline = 0; pipeline < job.parallel.pipeline; ++pipeline) {
    for (int tensor = 0; tensor < job.parallel.tensor; ++tensor) {
      const MeshPlace at{.tensor = tensor, .pipeline = pipeline};
      for (const auto& rows : {sync_bytes(lists, {}, at), pipeline_bytes(lists, {}, at)}) {
        for (const SentBytes& row : rows) {
          if (row.members) {
            classes[*row.members] += row.raw;
          }
        }
      }
    }
  }
  return classes;
}

std::vector<PlannedClass> timed_classes(const std::vector<schedule::ClassSlack>& slacks,
                                        const MeshLists& lists) {
  const std::map<schedule::TransferClass, std::size_t> bytes = raw_bytes(lists);
  std::vector<PlannedClass> classes;
  classes.reserve(slacks.size());
  for (const schedule::ClassSlack& row : slacks) {
    const auto listed = bytes.find(row.members);
    // The timeline knows the exchanges over tensor ranks of one replica alone.
    const std::size_t raw =
        listed != bytes.end()
            ? listed->second
            : row.bytes.value * static_cast<std::size_t>(lists.job().parallel.data);
    classes.push_back({.members = row.members,
                       .raw_bytes = raw,
                       .sent_bytes = raw,
                       .raw = (1.0 / row.count) * row.seconds,
                       .slack = std::max(row.slack, Seconds{}),
                       .reason = "not compressible"});
  }
  return classes;
}

PlannedClass& row_of(std::vector<PlannedClass>& classes, const ClassBytes& bytes) {
  const auto found = std::ranges::find(classes, bytes.members, &PlannedClass::members);
  return found != classes.end()
             ? *found
             : classes.emplace_back(PlannedClass{.members = bytes.members, .raw_bytes = bytes.raw});
}

// What the timeline knows of classes, with what a plan makes of them.
std::vector<PlannedClass> planned_classes(std::vector<PlannedClass> classes,
                                          const MeshLists& lists,
                                          const CompressionPlan& plan,
                                          const std::optional<StepCosts>& measured) {
  const std::vector<ClassBytes> bytes = class_bytes(lists, plan);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    PlannedClass& planned = row_of(classes, bytes[i]);
    planned.codec = plan.classes[i].codec;
    planned.reason = plan.classes[i].reason;
    planned.sent_bytes = planned.raw_bytes - bytes[i].raw + bytes[i].sent;
    const auto seconds = measured ? codec_seconds(bytes[i].compressed, *measured) : std::nullopt;
    if (seconds && !bytes[i].compressed.empty()) {
      planned.encode = seconds->encode;
      planned.decode = seconds->decode;
    }
  }
  return classes;
}

AxisBytes divided(AxisBytes bytes, int ranks) {
  for (std::size_t& of_axis : bytes) {
    of_axis /= static_cast<std::size_t>(ranks);
  }
  return bytes;
}

void plan_ranks(StepPlan& plan,
                const PlanHistory& plans,
                const StepTraffic& traffic,
                const LinkSpeeds& links) {
  const ParallelConfig& parallel = plan.job.mesh.parallel;
  const Mesh mesh = make_mesh(parallel);
  const std::vector<NodeShare> shares = node_shares(parallel, links);
  const std::shared_ptr<const StepSchedules> schedules = make_schedules(plan.job.mesh);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const MeshPlace place{.tensor = mesh.coordinate(rank, "tensor"),
                          .data = mesh.coordinate(rank, "data"),
                          .pipeline = mesh.coordinate(rank, "pipeline")};
    const NodeShare& share = shares[static_cast<std::size_t>(rank)];
    std::vector<MemoryItem> memory =
        memory_plan(plan.job, place, plans, share.num_threads, schedules);
    plan.ranks.push_back(
        {.place = place,
         .node = share.node,
         .memory_bytes = total_bytes(memory, plan.job.mesh.device),
         .sent = divided(traffic.places[static_cast<std::size_t>(place.pipeline)].sent,
                         parallel.tensor * parallel.data)});
    if (place.tensor == 0 && place.data == 0) {
      plan.memory.push_back(std::move(memory));
    }
  }
}

}  // namespace

LinkSpeeds links_of_run(const NetworkConfig& network, Device device, const LinkSpeeds& probed) {
  if (!network.emulates()) {
    return probed;
  }
  Cluster cluster = read_emulated_cluster(network.links);
  if (device != Device::rehearsal) {
    for (Cluster::Nodes& kind : cluster.nodes) {
      kind.device.reset();
    }
  }
  return cluster;
}

StepPlan make_step_plan(const PlanJob& planned,
                        const std::optional<StepCosts>& costs,
                        const LinkSpeeds& links,
                        const std::optional<PlanHistory>& given_plans) {
  const MeshJob& job = planned.mesh;
  StepCosts known = known_costs(job, costs, links);
  if (job.device == Device::rehearsal) {
    known.codecs_take_compute = false;  // waits take none of each other's time
  }
  const PlanHistory plans = given_plans ? *given_plans : expected_plans(planned, known, links);
  StepPlan plan{.job = planned,
                .parameters = num_parameters(job.model),
                .trained_parameters = num_trained_parameters(job.model),
                .tokens_per_step = planned.num_workers * job.global_batch() * job.model.sequence,
                .flops = flops_per_token(job.model),
                .stages = split_layers(job.model, job.parallel),
                .schedule = make_schedules(job)->training,
                .costs_from = costs ? "measured" : assumption(known.speeds),
                .links_from = links ? "given" : "none: transfers take no time",
                .has_measured_costs = costs.has_value(),
                .costs = known,
                .links = links,
                .plans = plans};
  const MeshLists lists(job);
  const schedule::CostModel uncoded = cost_model(lists, known, links);
  const schedule::Timeline plain = schedule::make_timeline(plan.schedule, uncoded);
  std::vector<schedule::ClassSlack> slacks = schedule::class_slacks(plain);
  std::ranges::copy(schedule::tensor_slacks(plain, plan.schedule, uncoded),
                    std::back_inserter(slacks));
  const std::vector<PlannedClass> classes = timed_classes(slacks, lists);
  for (const PlanFromStep& row : plans) {
    plan.timeline = predicted_timeline(lists, known, links, row.plan);
    plan.compression.push_back({.from_step = row.from_step,
                                .step = plan.timeline.step,
                                .classes = planned_classes(classes, lists, row.plan, costs)});
  }
  const StepTraffic traffic = step_traffic(lists, plans.back().plan);
  plan.step_bytes = traffic.all.sent;
  plan.step_bytes_across = traffic.all.across;
  plan.slots = schedule::input_slots(plan.schedule).num_slots;
  plan_ranks(plan, plans, traffic, links);
  if (planned.outer.is_on()) {
    const RoundKind kind = round_kind(planned.outer, planned.compress);
    plan.round = outer_round(job, planned.num_workers, kind, links, &known);
  }
  return plan;
}

std::optional<std::int64_t> StepPlan::shortest_period() const {
  if (!round || !round->seconds || timeline.step.value <= 0.0) {
    return std::nullopt;
  }
  return chosen_period(round->seconds->value, timeline.step.value, 1);
}

StepPlan read_step_plan(const PlanJob& asked,
                        const StepPlanFiles& files,
                        const LinkSpeeds& probed,
                        const std::optional<PlanHistory>& plans) {
  PlanJob job = asked;
  std::string costs_path = files.costs;
  if (costs_path.empty() && job.mesh.device == Device::rehearsal) {
    costs_path = job.rehearsal_costs;
  }
  std::optional<StepCosts> costs;
  if (!costs_path.empty()) {
    costs = fitting_costs(costs_path, job);
    if (files.costs.empty()) {
      costs->nodes.clear();  // a rehearsal's ranks stand elsewhere
    }
  }
  const KnownLinks known = probed ? KnownLinks{probed, "probed"} : known_links(job, files);
  const bool measured = !known.links && costs;
  const LinkSpeeds links =
      measured ? measured_links(*costs, job.num_workers * job.mesh.parallel.num_ranks())
               : known.links;
  job = with_strategy(job, known_costs(job.mesh, costs, links), links);
  if (!plans) {
    static_cast<void>(compression_plans(job));  // refuses what does not fit the layout
  }
  // Only costs can fail to fit here.
  StepPlan plan =
      reading<ConfigError>(costs_path, [&] { return make_step_plan(job, costs, links, plans); });
  plan.costs_from = costs ? costs_path : plan.costs_from;
  if (links) {
    plan.links_from = measured ? costs_path : known.from;
  }
  return plan;
}

}  // namespace slackline
