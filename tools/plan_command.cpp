#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "core/file_io.h"
#include "core/terminal.h"
#include "tools/commands.h"
#include "tools/layout_advice.h"
#include "tools/plan_json.h"
#include "tools/plan_text.h"
#include "tools/step_plan.h"

namespace slackline {

namespace {

struct PlanOptions {
  std::string config;
  std::vector<std::string> assignments;
  StepPlanFiles files;
  std::string trace;
  bool json = false;
};

void print_plan(const PlanOptions& options) {
  JsonReader document = JsonReader::parse_file(options.config);
  for (const std::string& assignment : options.assignments) {
    document.set(assignment);
  }
  const TrainConfig config = read_train_config(document);
  const StepPlan plan = read_step_plan(config, options.files);
  if (!options.trace.empty()) {
    write_file_atomically(options.trace, plan_trace(plan));
  }
  LayoutAdvice advice;
  if (config.parallel.num_ranks() > 1) {
    advice = advise_layouts(config, document.resolved(), plan.costs, plan.links);
  }
  if (options.json) {
    print_json(plan_json(plan, advice_json(advice)));
    return;
  }
  std::string text = plan_text(plan);
  if (config.compress.policy != CompressionPolicy::none) {
    text += "\n" + compression_text(plan);
  }
  if (!advice.layouts.empty()) {
    text += "\n" + advice_text(advice);
  }
  print_lines(text);
}

}  // namespace

void add_plan_command(CLI::App& app, ExitCode& code) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Print what a config would take, without running it");
  command->add_option("CONFIG", options->config, "JSON config")->required();
  command->add_option("--set", options->assignments, "Change one key: --set parallel.data=4")
      ->take_all();
  command->add_option(
      "--cluster", options->files.cluster, "JSON file of nodes and links; else network.links");
  command->add_option(
      "--costs", options->files.costs, "A run's costs.json; else speeds are assumed");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->add_option(
      "--trace", options->trace, "Write the predicted timeline here, as a Chrome trace");
  command->footer(
      "Example: slackline plan configs/gpt2_124m.json --costs runs/first/costs.json "
      "--trace predicted.json");
  command->callback([options, &code] {
    print_plan(*options);
    code = ExitCode::done;
  });
}

}  // namespace slackline
