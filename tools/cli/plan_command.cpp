#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/shown_text.h"
#include "core/terminal.h"
#include "data/data_members.h"
#include "tools/cli/commands.h"
#include "tools/config/config_job.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/layout_advice.h"
#include "tools/plan/link_ways.h"
#include "tools/plan/plan_json.h"
#include "tools/plan/plan_text.h"
#include "tools/plan/step_plan.h"
#include "tools/plan/strategy_ranking.h"
#include "tools/run/data_table.h"

namespace slackline {

namespace {

struct PlanOptions {
  std::string config;
  std::vector<std::string> assignments;
  StepPlanFiles files;
  std::string trace;
  bool json = false;
};

// How a run would use its training data; empty where their files are not on this machine, and for a
// rehearsal, which reads none.
std::vector<DataTableRow> planned_data(const TrainConfig& config) {
  DataConfig data = config.data;
  data.valid.clear();  // these need not be here; `split` says already what is left for training
  if (config.device == Device::rehearsal ||
      !std::all_of(data.train.begin(), data.train.end(), [](const DataSource& source) {
        return token_file_exists(source.path);
      })) {
    return {};
  }
  const DataMembers members = open_data(data, kAnyVocabulary, config.model.sequence);
  for (const DataMember& member : members.train) {
    require_one_sample(member, config.model.sequence);
  }
  return data_table(config, members.train);
}

std::string data_text(const std::vector<DataTableRow>& rows) {
  if (rows.empty()) {
    return "";
  }
  std::string text = "\n" + data_table_text(rows);
  for (const std::string& warning : data_table_warnings(rows)) {
    text += "warning: " + shown_line(warning) + "\n";
  }
  return text;
}

// Workers are the data ranks of a node where their size is not given.
ParallelConfig with_workers(const TrainConfig& config, const StepPlanFiles& files) {
  ParallelConfig parallel = config.parallel;
  LinkSpeeds links = files.cluster.empty() ? links_of_run(config.network, config.device, {})
                                           : read_cluster(files.cluster);
  if (!links && !files.costs.empty()) {
    links = measured_links(read_cost_file(files.costs), parallel.num_ranks());
  }
  if (links) {
    PlanJob job = plan_job(config);
    job.mesh.parallel = parallel;  // of all workers
    job.num_workers = 1;
    parallel = with_groups_of_nodes(
        parallel, config.network.collectives, fewest_ranks_of_node(*links, job));
  }
  if (parallel.num_workers() == 1) {
    throw ConfigError(
        "outer.method: needs two workers or more, and which data ranks stand on a node is not "
        "known; set parallel.group, or give --cluster with several nodes, or --costs of a run on "
        "several");
  }
  return parallel;
}

void print_plan(const PlanOptions& options) {
  JsonReader document = JsonReader::parse_file(options.config);
  for (const std::string& assignment : options.assignments) {
    document.set(assignment);
  }
  TrainConfig config = read_train_config(document);
  if (config.parallel.groups_apart) {
    config.parallel = with_workers(config, options.files);
  }
  const StepPlan plan = read_step_plan(plan_job(config), options.files);
  if (!options.trace.empty()) {
    write_file_atomically(options.trace, plan_trace(plan));
  }
  const auto job_with = [&](const std::vector<std::string>& assignments) {
    return plan_job_with(document.resolved(), assignments);
  };
  LayoutAdvice advice;
  if (config.parallel.num_ranks() > 1 && !config.parallel.groups_apart) {
    advice = advise_layouts(plan.job, job_with, plan.costs, plan.links);
  }
  StrategyRanking strategies;
  const ParallelConfig& parallel = plan.job.mesh.parallel;
  if (parallel.data > 1) {
    strategies = rank_strategies(plan.job, plan.costs, plan.links);
  }
  const std::vector<LinkWay> ways = ways_over_links(plan.job, job_with, plan.costs, plan.links);
  const std::vector<DataTableRow> data = planned_data(config);
  if (options.json) {
    print_json(plan_json(plan,
                         {.layouts = advice_json(advice),
                          .strategies = ranking_json(strategies, parallel.data_strategy),
                          .ways = ways_json(ways),
                          .data = data_rows_json(data)}));
    return;
  }
  std::string text = plan_text(plan) + data_text(data);
  if (config.compress.policy != CompressionPolicy::none) {
    text += "\n" + compression_text(plan);
  }
  if (!strategies.rows.empty()) {
    text += "\n" + ranking_text(strategies, parallel.data_strategy);
  }
  if (!ways.empty()) {
    text += "\n" + ways_text(ways);
  }
  if (!advice.layouts.empty()) {
    text += "\n" + advice_text(advice);
  }
  print_lines(text);
}

}  // namespace

void add_plan_command(Command root) {
  auto options = std::make_shared<PlanOptions>();
  Command command = root.add_command("plan", "Print what a config would take, without running it");
  command.option("CONFIG", &options->config, "JSON config", {.required = true});
  command.option("--set",
                 &options->assignments,
                 "Change one key: --set parallel.data=4",
                 {.single_values = true});
  command.option(
      "--cluster", &options->files.cluster, "JSON file of nodes and links; else network.links");
  command.option("--costs", &options->files.costs, "A run's costs.json; else speeds are assumed");
  command.flag("--json", &options->json, "Print JSON instead of tables");
  command.option(
      "--trace", &options->trace, "Write the predicted timeline here, as a Chrome trace");
  command.footer(
      "Example: slackline plan configs/gpt2_124m.json --costs runs/first/costs.json "
      "--trace predicted.json");
  command.runs([options] { print_plan(*options); });
}

}  // namespace slackline
