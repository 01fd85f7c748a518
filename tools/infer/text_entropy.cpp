// text_entropy FILE: the yardstick for a byte model's loss. Prints, for orders 0 to 3, the entropy
// in nats of a byte of the file given the bytes before it.

#include <string>

#include <fmt/core.h>

#include "core/error.h"
#include "core/file_io.h"
#include "core/log.h"
#include "core/terminal.h"
#include "tools/infer/conditional_entropy.h"

namespace {

int run(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    throw slackline::ConfigError("usage: text_entropy FILE");
  }
  const std::string text = slackline::read_file(argv[1]);
  for (int order = 0; order <= slackline::kMaxEntropyOrder; ++order) {
    const double entropy = slackline::conditional_entropy(text, order);
    slackline::print_lines(fmt::format("order {}: {:.4f} nats/byte\n", order, entropy));
  }
  return static_cast<int>(slackline::ExitCode::done);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const slackline::Error& error) {
    slackline::log_error(slackline::Lines{error.what()});
    return static_cast<int>(error.exit_code());
  }
}
