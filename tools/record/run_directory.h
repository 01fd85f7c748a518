#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_io.h"
#include "core/locked_file.h"
#include "tools/plan/plan_json.h"
#include "tools/record/metrics.h"
#include "tools/record/tensorboard_writer.h"

namespace slackline {

// The directory of one run and the files a trainer writes there besides checkpoints
// (docs/operations.md). Constructing one touches nothing; claim() makes the directory, start() the
// files.
class RunDirectory {
 public:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] std::string checkpoints() const { return path_ + "/checkpoints"; }

  // Throws FileError when another run's files are here.
  void refuse_occupied() const;

  // Takes the lock that a run has left here, or still has: while another process writes this
  // directory, throws FileError that names it. Creates nothing.
  void claim_existing();

  // Creates the directory and takes its lock, unless this object has it. The lock lasts as long as
  // the object.
  void claim();

  // The step's line is in metrics.jsonl, and no evaluation of it. Touches nothing.
  [[nodiscard]] bool lacks_evaluation(std::int64_t step) const;

  // Writes config and plan, and opens metrics and TensorBoard events. Lines of steps after
  // `last_step` (of a run that went on after its checkpoint) are cut off. REQUIRES: claimed.
  void start(const std::string& resolved_config, const PlanFiles& plan, std::int64_t last_step);

  // REQUIRES: started. Each file is the old one or the new one at any time.
  void write_plan(const PlanFiles& plan) const;
  // Writes a file of another name, such as "trace.json".
  void write(const std::string& name, std::string_view content) const;

  // REQUIRES: started. Each line is in the file when the call returns.
  void record(const StepRecord& record);
  void record_evaluation(std::int64_t step, double loss);

  // Writes metrics.jsonl and its name in the directory to the disk, so that what is put there
  // afterwards never outlives it. Does nothing where there is none. Once started, throws FileError
  // where the directory, or the file in it, has become another one.
  void sync_record() const;

 private:
  void remove_trace_of_other_layout(const std::string& resolved_config) const;

  std::string path_;
  std::optional<LockedFile> lock_;
  std::unique_ptr<LineFile> metrics_;
  std::unique_ptr<TensorboardWriter> events_;
};

}  // namespace slackline
