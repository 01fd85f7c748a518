#include "data/formats/tasks_file.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/json_reader.h"
#include "data/formats/input_file.h"

namespace slackline {

namespace {

Task task_of(JsonReader object, std::uint64_t line) {
  Task task{.context = object.string("context"), .line = line};
  if (!object.has("choices")) {
    task.choices.push_back(object.string("target"));
    if (task.choices.front().empty()) {
      object.fail("target", "must be text of a character or more");
    }
    return task;
  }
  task.choices = object.strings("choices");
  if (task.choices.size() < 2) {
    object.fail("choices", "must be a list of two or more");
  }
  for (std::size_t i = 0; i < task.choices.size(); ++i) {
    if (task.choices[i].empty()) {
      object.fail("choices", fmt::format("number {} must be text of a character or more", i));
    }
  }
  const auto last = static_cast<std::int64_t>(task.choices.size()) - 1;
  task.answer = static_cast<std::size_t>(object.integer("answer", {.min = 0, .max = last}));
  return task;
}

}  // namespace

std::vector<Task> read_tasks(const std::string& path) {
  InputFile file(path);
  std::vector<Task> tasks;
  std::string line;
  for (std::uint64_t number = 1; file.read_line(line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const std::string where = fmt::format("{}: line {}", path, number);
    tasks.push_back(
        reading(where, [&] { return task_of(JsonReader::parse(line, where), number); }));
  }
  if (tasks.empty()) {
    throw FileError(fmt::format(
        "{}: has no task: a line like {{\"context\": \"\", \"choices\": [], \"answer\": 0}}, or "
        "with \"target\"",
        path));
  }
  return tasks;
}

}  // namespace slackline
