#include "tools/cli/compression_option.h"

#include <fmt/format.h>

#include "core/error.h"

namespace slackline {

void add_compression_option(Command command,
                            CompressionOption& value,
                            const std::string& otherwise) {
  command.option("--compression",
                 &value,
                 "Compress activations between pipeline stages as in training; " + otherwise,
                 {.one_of = {"on", "off"}});
}

void check_compression_option(const CompressionOption& value,
                              const std::string& checkpoint,
                              const InferenceModel& model) {
  if (value == "on" && model.activation_codecs == nullptr) {
    throw ConfigError(
        fmt::format("--compression: the training of {} compressed no activations (site "
                    "pipeline_forward), so only off is allowed; got on",
                    checkpoint));
  }
}

}  // namespace slackline
