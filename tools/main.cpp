#include <cstddef>
#include <exception>

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "core/log.h"
#include "core/shown_text.h"
#include "tools/commands.h"

namespace {

int report(const slackline::Error& error) {
  slackline::log_error(slackline::Lines{error.what()});
  return static_cast<int>(error.exit_code());
}

// Parses the command line and runs the subcommand it names.
int run(int argc, char** argv) {
  using slackline::ExitCode;
  CLI::App app("Slackline trains GPT language models. One config, one command.", "slackline");
  app.require_subcommand(0, 1);  // none: see below; an unknown one is named as an extra argument
  app.set_version_flag("--version", "slackline " SL_VERSION);
  auto code = ExitCode::done;
  slackline::add_train_command(app, code);
  slackline::add_plan_command(app, code);
  slackline::add_prepare_command(app, code);
  slackline::add_evaluate_command(app, code);
  slackline::add_generate_command(app, code);
  slackline::add_inspect_command(app, code);
  slackline::add_report_command(app, code);
  slackline::add_import_command(app, code);
  slackline::add_export_command(app, code);
  slackline::add_compare_command(app, code);
  slackline::add_sweep_command(app, code);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) {
      throw slackline::ConfigError("a subcommand is required; slackline --help lists them");
    }
  } catch (const CLI::ParseError& error) {
    // --help and --version end here too, with exit code 0 and text that is all ours.
    if (error.get_exit_code() == 0) {
      return app.exit(error);
    }
    constexpr std::size_t kLongest = 400;  // bytes; it quotes what it did not expect
    slackline::log_error(slackline::with_hint(slackline::shown_value(error.what(), kLongest),
                                              "slackline --help, slackline COMMAND --help"));
    return static_cast<int>(ExitCode::config);
  }
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const slackline::Error& error) {
    return report(error);
  } catch (const std::exception& error) {
    return report(slackline::Error(error.what()));
  }
}
