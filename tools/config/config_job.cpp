#include "tools/config/config_job.h"

#include <cstddef>
#include <utility>

#include "core/error.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace slackline {

namespace {

// 0 of what is not there, or not to be looked at: whoever opens it says so.
std::size_t bytes_of(const std::string& path) {
  try {
    return is_regular_file(path) ? file_bytes(path) : 0;
  } catch (const FileError&) {
    return 0;
  }
}

// Every page of a token file is touched when its tokens are checked against the vocabulary.
std::size_t mapped_bytes(const DataConfig& data) {
  std::size_t bytes = 0;
  for (const std::vector<DataSource>* sources : {&data.train, &data.valid}) {
    for (const DataSource& source : *sources) {
      for (const char* ending : {"", ".bin", ".idx"}) {
        bytes += bytes_of(source.path + ending);
      }
    }
  }
  return bytes;
}

}  // namespace

PlanJob plan_job(const TrainConfig& config) {
  return {.mesh = config.mesh_job(),
          .compress = config.compress,
          .network = config.network,
          .outer = config.outer,
          .num_workers = config.parallel.num_workers(),
          .rehearsal_costs = config.device == Device::rehearsal ? config.rehearsal.costs : "",
          .token_file_bytes = mapped_bytes(config.data),
          .keeps_codec_state =
              config.run.on_nonfinite == OnNonFinite::skip || config.run.eval_every > 0,
          .chooses_micro_batch = config.parallel.chooses_strategy && !config.batch.micro_given,
          .cuda_graphs = config.run.cuda_graphs};
}

std::optional<PlanJob> plan_job_with(const std::string& document,
                                     const std::vector<std::string>& assignments) {
  try {
    JsonReader reader = JsonReader::parse(document, "a layout");
    for (const std::string& assignment : assignments) {
      reader.set(assignment);
    }
    return plan_job(read_train_config(std::move(reader)));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace slackline
