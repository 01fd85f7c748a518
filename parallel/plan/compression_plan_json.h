#pragma once

#include <string>
#include <vector>

#include "parallel/plan/codec_errors.h"
#include "parallel/plan/compression_plan.h"

namespace slackline {

// Writes a plan as an entry of plan.json, without what is measured or predicted.
[[nodiscard]] std::string compression_plan_json(const PlanFromStep& plan);

// Reads it back.
[[nodiscard]] PlanFromStep read_compression_plan(const std::string& json);

// Reads a list of such entries from a file, whatever layout they are of. Throws FileError or
// ConfigError.
[[nodiscard]] PlanHistory read_plans(const std::string& path);

// Reads them as plans of a config that has these classes, and those
// of gathers where a plan codes one of them. Throws FileError or ConfigError, the latter without
// the file's name, where the list does not fit.
[[nodiscard]] PlanHistory read_plan_file(const std::string& path,
                                         std::vector<schedule::TransferClass> classes,
                                         const std::vector<schedule::TransferClass>& gathers);

// Holds a run's plans, and what codecs were measured to lose, by which a guard decides.
struct StoredPlans {
  PlanHistory plans{};
  CodecErrors errors{};
};

// Says what a checkpoint says of compression: the plan in force as an entry, all plans as its
// `history`, and errors of codecs as `errors` (trials) and `sampled_errors`.
[[nodiscard]] std::string plan_document(const PlanFromStep& in_force,
                                        const PlanHistory& plans,
                                        const CodecErrors& errors);

// Reads the history and the errors back, for a config that has these classes.
[[nodiscard]] StoredPlans read_plan_document(const std::string& document,
                                             const std::vector<schedule::TransferClass>& classes);

}  // namespace slackline
