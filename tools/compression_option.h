#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace slackline {

// Adds `--compression on|off` of commands that run a trained model: whether the codecs of the
// checkpoint's plan act on its transfers. Off by default. TODO when codecs are built: `on`.
void add_compression_option(CLI::App& command, std::string& value);

// Throws ConfigError for what is not built.
void check_compression_option(const std::string& value);

}  // namespace slackline
