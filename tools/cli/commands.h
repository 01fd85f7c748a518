#pragma once

#include "core/error.h"
#include "tools/cli/command_line.h"

// One function per subcommand, each in its own <name>_command.cpp: adds the subcommand with its
// options, help and an example, and a callback that runs it. Errors are thrown; a command that ends
// in another way than `done` without being an error (stopped by a signal) sets `code`.
namespace slackline {

void add_train_command(Command root, ExitCode& code);
void add_plan_command(Command root);
void add_prepare_command(Command root);
void add_evaluate_command(Command root);
void add_generate_command(Command root);
void add_score_command(Command root);
void add_inspect_command(Command root);
void add_report_command(Command root);
void add_import_command(Command root);
void add_export_command(Command root);
void add_compare_command(Command root, ExitCode& code);
void add_sweep_command(Command root, ExitCode& code);

}  // namespace slackline
