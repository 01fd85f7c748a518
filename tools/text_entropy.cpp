// text_entropy FILE: the yardstick for a byte model's loss. Prints, for orders 0 to 3, the entropy
// in nats of a byte of the file given the bytes before it.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include <fmt/core.h>

#include "core/error.h"
#include "tools/conditional_entropy.h"

namespace {

std::string read_file(const char* path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) {
    throw slackline::FileError(fmt::format("{}: {}", path, error.message()));
  }
  std::string text(bytes, '\0');
  if (!std::ifstream(path, std::ios::binary).read(text.data(), std::ssize(text))) {
    throw slackline::FileError(fmt::format("{}: cannot be read", path));
  }
  return text;
}

int run(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    throw slackline::ConfigError("usage: text_entropy FILE");
  }
  const std::string text = read_file(argv[1]);
  for (int order = 0; order <= slackline::kMaxEntropyOrder; ++order) {
    fmt::print("order {}: {:.4f} nats/byte\n", order, slackline::conditional_entropy(text, order));
  }
  return static_cast<int>(slackline::ExitCode::done);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const slackline::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
