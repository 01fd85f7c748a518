#include "tests/tools/run/older_checkpoint.h"

#include <nlohmann/json.hpp>

#include "core/file_io.h"

namespace slackline {

void make_older(const std::string& checkpoint, Validation validation) {
  const std::string path = checkpoint + "/manifest.json";
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(read_file(path));
  manifest["data"].erase("settings");
  manifest["data"].erase("contents");
  nlohmann::ordered_json& identity = manifest["data"]["identity"];
  identity["data.valid given"] = validation == Validation::files;
  if (validation == Validation::files) {
    identity["data.split"] = {0.95, 0.05, 0.0};
  }
  manifest.erase("xxh3");  // of the text before
  write_file_atomically(path, manifest.dump());
}

}  // namespace slackline
