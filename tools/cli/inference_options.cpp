#include "tools/cli/inference_options.h"

#include <fmt/format.h>

#include "core/cuda/cuda_device.h"
#include "core/error.h"
#include "core/log.h"
#include "core/threads/thread_pool.h"

namespace slackline {

void add_compression_option(Command command,
                            InferenceOptions& options,
                            const std::string& otherwise) {
  command.option("--compression",
                 &options.compression,
                 "Compress activations between pipeline stages as in training; " + otherwise,
                 {.one_of = {"on", "off"}});
}

void add_device_option(Command command, InferenceOptions& options) {
  command.option(
      "--device",
      &options.device,
      "Where it computes: the processor, or the first CUDA device",
      {.shows_default = true,
       .one_of = {std::string(name_of(Device::cpu)), std::string(name_of(Device::cuda))}});
}

Workers make_workers(const InferenceOptions& options) {
  if (options.device != name_of(Device::cuda)) {
    return {default_num_threads(), Device::cpu};
  }
  if (!cuda::is_built()) {
    throw ConfigError(
        fmt::format("--device: {}; or use cpu; got {}", cuda::obstacle(), options.device));
  }
  cuda::use_device(0);
  log_info(cuda::device_text());
  return {default_num_threads(), Device::cuda};
}

InferenceModel open_model(const InferenceOptions& options, const Workers& workers) {
  InferenceModel model = load_inference_model(options.checkpoint, workers);
  if (options.compression == "on" && model.activation_codecs == nullptr) {
    throw ConfigError(
        fmt::format("--compression: the training of {} compressed no activations (site "
                    "pipeline_forward), so only off is allowed; got on",
                    options.checkpoint));
  }
  return model;
}

}  // namespace slackline
