#include "tools/record/run_directory.h"

#include <charconv>
#include <fcntl.h>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shown_text.h"
#include "tools/record/run_lock.h"

namespace slackline {

namespace {

// The step of a metrics line, which starts {"step": N; -1 when it does not.
std::int64_t step_of(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\": ";
  std::int64_t step = -1;
  if (line.substr(0, kStart.size()) == kStart) {
    const std::string_view rest = line.substr(kStart.size());
    std::from_chars(rest.data(), rest.data() + rest.size(), step);
  }
  return step;
}

}  // namespace

void RunDirectory::refuse_occupied() const {
  for (const char* name : {"metrics.jsonl", "config.resolved.json", "checkpoints"}) {
    if (path_exists(path_ + "/" + name)) {
      throw FileError(path_ + ": holds a run already (" + name +
                      "); continue it with --resume, or choose another run.dir");
    }
  }
}

void RunDirectory::claim_existing() {
  lock_ = lock_existing_run(path_);
}

void RunDirectory::claim() {
  make_directories(path_);
  if (!lock_) {
    lock_ = lock_run(path_);
  }
}

bool RunDirectory::lacks_evaluation(std::int64_t step) const {
  std::ifstream lines(path_ + "/metrics.jsonl");
  bool trained = false;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {  // whole lines
    if (step_of(line) == step) {
      if (line.find("\"eval_loss\"") != std::string::npos) {
        return false;
      }
      trained = true;
    }
  }
  return trained;
}

void RunDirectory::start(const std::string& resolved_config,
                         const PlanFiles& plan,
                         std::int64_t last_step) {
  remove_trace_of_other_layout(resolved_config);
  write_file_atomically(path_ + "/config.resolved.json", resolved_config);
  write_plan(plan);
  metrics_ = std::make_unique<LineFile>(path_ + "/metrics.jsonl");
  metrics_->truncate_before([&](std::string_view line) { return step_of(line) > last_step; });
  events_ = std::make_unique<TensorboardWriter>(path_);
}

// A report would draw it over the plan of this one.
void RunDirectory::remove_trace_of_other_layout(const std::string& resolved_config) const {
  const std::string config = path_ + "/config.resolved.json";
  if (!path_exists(config) || !path_exists(path_ + "/trace.json")) {
    return;
  }
  const auto layout_of = [](const std::string& text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    return json.is_object() ? json.value("parallel", nlohmann::json()) : nlohmann::json();
  };
  if (layout_of(read_file(config)) != layout_of(resolved_config)) {
    remove_tree(path_ + "/trace.json");
  }
}

void RunDirectory::write_plan(const PlanFiles& plan) const {
  write_file_atomically(path_ + "/plan.json", plan.json);
  write_file_atomically(path_ + "/plan.txt", shown_lines(plan.text));
}

void RunDirectory::write(const std::string& name, std::string_view content) const {
  write_file_atomically(path_ + "/" + name, content);
}

void RunDirectory::record(const StepRecord& record) {
  StepRecord line = record;
  line.time = unix_seconds();
  metrics_->append(step_line(line));
  if (!record.rehearsed) {
    events_->scalar("loss", record.step, record.loss);
    events_->scalar("grad_norm", record.step, record.grad_norm);
    events_->scalar("lr", record.step, record.lr);
  }
  events_->scalar(
      "tokens_per_second", record.step, static_cast<double>(record.tokens) / record.step_seconds);
  events_->flush();
}

void RunDirectory::sync_record() const {
  const std::string path = path_ + "/metrics.jsonl";
  if (metrics_ && !metrics_->is_in_place()) {
    throw FileError(fmt::format(
        "{}: is not what this run writes any more: it, or its directory, was moved, removed or "
        "replaced, and nothing more is saved here",
        path));
  }
  if (!path_exists(path)) {
    return;
  }
  OpenFile(path, O_RDONLY, "write to disk").sync(path);
  sync_directory(path_);
}

void RunDirectory::record_evaluation(std::int64_t step, double loss) {
  metrics_->append(evaluation_line(step, loss, unix_seconds()));
  events_->scalar("eval_loss", step, loss);
  events_->flush();
}

}  // namespace slackline
