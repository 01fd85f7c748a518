#pragma once

#include <string>
#include <vector>

#include "core/json_reader.h"
#include "tools/config/config_job.h"

namespace slackline {

// Eight equal layers, eight micro-batches of 256 tokens on one data rank; keys changed as by --set.
inline JsonReader planned_document(const std::vector<std::string>& assignments) {
  JsonReader document = JsonReader::parse(R"({
    "run": {"dir": "runs/x", "steps": 10},
    "model": {"layers": 8, "hidden": 256, "heads": 8, "sequence": 128, "vocab": 256},
    "data": {"train": [{"path": "corpus/missing"}]},
    "batch": {"global": 16, "micro": 2}
  })",
                                          "planned.json");
  for (const std::string& assignment : assignments) {
    document.set(assignment);
  }
  return document;
}

inline TrainConfig planned_config(const std::vector<std::string>& assignments) {
  return read_train_config(planned_document(assignments));
}

inline PlanJob planned_job(const std::vector<std::string>& assignments) {
  return plan_job(planned_config(assignments));
}

}  // namespace slackline
