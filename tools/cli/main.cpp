#include <csignal>
#include <exception>
#include <new>

#include "core/error.h"
#include "core/log.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"

namespace {

int report(const slackline::Error& error) {
  slackline::log_error(slackline::Lines{error.what()});
  return static_cast<int>(error.exit_code());
}

// Parses the command line and runs the subcommand it names.
int run(int argc, char** argv) {
  using slackline::ExitCode;
  slackline::CommandLine line("Slackline trains GPT language models. One config, one command.",
                              "slackline");
  line.version("slackline " SL_VERSION);
  const slackline::Command root = line.root();
  auto code = ExitCode::done;
  slackline::add_train_command(root, code);
  slackline::add_plan_command(root);
  slackline::add_prepare_command(root);
  slackline::add_evaluate_command(root);
  slackline::add_generate_command(root);
  slackline::add_score_command(root);
  slackline::add_inspect_command(root);
  slackline::add_report_command(root);
  slackline::add_import_command(root);
  slackline::add_export_command(root);
  slackline::add_compare_command(root, code);
  slackline::add_sweep_command(root, code);
  if (!line.parse(argc, argv)) {
    return 0;
  }
  if (!line.has_command()) {
    throw slackline::ConfigError("a subcommand is required; slackline --help lists them");
  }
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that has gone is a failed write, which is told or, of progress, passed over.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const slackline::Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(slackline::DeviceError("out of host memory"));
  } catch (const std::exception& error) {
    return report(slackline::Error(error.what()));
  }
}
