#include "tools/memory_plan.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "model/stage.h"
#include "optim/adamw_optimizer.h"

namespace slackline {

namespace {

Stage::Options stage_options(const TrainConfig& config) {
  return {.micro_batch = config.micro_shape(), .compute = config.precision};
}

// Every page of a token file is touched when its tokens are checked against the vocabulary.
std::size_t mapped_bytes(const DataConfig& data) {
  std::size_t bytes = 0;
  for (const std::vector<DataSource>* sources : {&data.train, &data.valid}) {
    for (const DataSource& source : *sources) {
      for (const char* ending : {"", ".bin", ".idx"}) {
        std::error_code absent;
        const std::uintmax_t size = std::filesystem::file_size(source.path + ending, absent);
        bytes += absent ? 0 : size;
      }
    }
  }
  return bytes;
}

}  // namespace

std::size_t training_workspace_bytes(const TrainConfig& config, int num_threads) {
  return Stage::workspace_bytes(config.model, stage_options(config), num_threads);
}

std::vector<MemoryItem> memory_plan(const TrainConfig& config, int num_threads) {
  const Parameters::Bytes parameters =
      Parameters::bytes(config.model, {.compute = config.precision});
  std::vector<Shape> shapes;
  for (const ParameterSpec& spec : parameter_table(config.model)) {
    shapes.push_back(spec.shape);
  }
  const std::size_t moments = AdamwOptimizer::moment_bytes(shapes);
  // Saving copies weights and moments, so that training goes on while they are written.
  const std::size_t staging = parameters.weights + moments;
  return {
      {"weights (fp32)", parameters.weights},
      {"gradients (fp32)", parameters.gradients},
      {"input embedding gradient (fp32)", parameters.input_gradient},
      {"weights (bf16 copies)", parameters.copies},
      {"AdamW moments (fp32)", moments},
      {"activations", Stage::activation_bytes(config.model, stage_options(config))},
      {"workspace", training_workspace_bytes(config, num_threads)},
      {"checkpoint staging", staging},
      {"token files (mapped)", mapped_bytes(config.data)},
      {"program and libraries", kLibraryBytes},
  };
}

std::size_t total_bytes(const std::vector<MemoryItem>& plan) {
  std::size_t total = 0;
  for (const MemoryItem& item : plan) {
    total += item.bytes;
  }
  return total;
}

}  // namespace slackline
