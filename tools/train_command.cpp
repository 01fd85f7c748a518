#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/thread_pool.h"
#include "tools/commands.h"
#include "tools/train_config.h"
#include "tools/trainer.h"

namespace slackline {

namespace {

struct TrainOptions {
  std::string config;
  std::vector<std::string> assignments;
  bool resume = false;
  bool validate = false;
  bool print_config = false;
  int ranks = 1;
};

ExitCode train(const TrainOptions& options) {
  JsonReader document = JsonReader::parse_file(options.config);
  for (const std::string& assignment : options.assignments) {
    document.set(assignment);
  }
  const TrainConfig config = read_train_config(document);
  if (options.ranks != 1) {
    throw ConfigError("--ranks: more than one rank is not built yet; use 1; got " +
                      std::to_string(options.ranks));
  }
  if (options.print_config) {
    std::puts(document.resolved().c_str());
    return ExitCode::done;
  }
  if (options.validate) {
    std::printf("%s: valid\n", options.config.c_str());
    return ExitCode::done;
  }
  Trainer trainer(config,
                  {.resume = options.resume,
                   .num_threads = default_num_threads(),
                   .resolved_config = document.resolved() + "\n"});
  return trainer.run();
}

}  // namespace

void add_train_command(CLI::App& app, ExitCode& code) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a model as a config says");
  command->add_option("CONFIG", options->config, "JSON config; configs/README.md has every key")
      ->required();
  command->add_option("--set", options->assignments, "Change one key: --set optimizer.lr=1e-3")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--resume", options->resume, "Continue from the run's newest checkpoint");
  command->add_option("--ranks", options->ranks, "Ranks as threads of this process");
  command->add_flag("--validate", options->validate, "Check the config and end");
  command->add_flag("--print-config", options->print_config, "Print the config with all defaults");
  command->footer(
      "Example: slackline train configs/tiny_cpu.json --set run.steps=100\n"
      "Ends with 6 after SIGTERM, SIGINT or SIGUSR1, having saved; --resume goes on from there.");
  command->callback([options, &code] { code = train(*options); });
}

}  // namespace slackline
