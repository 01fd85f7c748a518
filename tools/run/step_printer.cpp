#include "tools/run/step_printer.h"

#include <string>
#include <unistd.h>

#include "core/comm/transport/mpi_world.h"
#include "core/terminal.h"
#include "model/cost/flops.h"

namespace slackline {

void StepPrinter::print(const StepRecord& record) {
  recent_seconds_ = recent_seconds_ == 0.0 ? record.step_seconds
                                           : 0.9 * recent_seconds_ + 0.1 * record.step_seconds;
  const std::string line = console_line(record,
                                        {.steps = config_->run.steps,
                                         .flops_per_token = flops_per_token(config_->model).causal,
                                         .peak_flops = peak_flops_,
                                         .seconds_per_step = recent_seconds_});
  const bool due = record.step % config_->run.log_every == 0 || record.step == config_->run.steps;
  // mpirun gives ranks a terminal whatever its own output goes to.
  const bool redraws = isatty(STDOUT_FILENO) != 0 && !launched_by_mpi();
  if (redraws) {
    redraw_line(Output::standard, line);  // replaced by the next step's where this one is not due
  }
  if (due) {
    print_progress(redraws ? "\n" : line + "\n");
  }
}

}  // namespace slackline
