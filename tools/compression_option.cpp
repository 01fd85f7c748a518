#include "tools/compression_option.h"

#include <CLI/CLI.hpp>

#include "core/error.h"

namespace slackline {

void add_compression_option(CLI::App& command, std::string& value) {
  command
      .add_option("--compression", value, "Compress transfers as in training (on is not built yet)")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

void check_compression_option(const std::string& value) {
  if (value == "on") {
    throw ConfigError("--compression: compression is not built yet; use off; got on");
  }
}

}  // namespace slackline
