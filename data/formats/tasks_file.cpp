#include "data/formats/tasks_file.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strict_json.h"
#include "data/formats/input_file.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

// Why a line is no task.
class NoTask : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    throw NoTask(fmt::format("must have a string \"{}\"", key));
  }
  return found->get<std::string>();
}

std::string continuation(const Json& value, const std::string& key) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    throw NoTask(fmt::format("{} must be text of a character or more", key));
  }
  return value.get<std::string>();
}

Task task_of(const Json& object) {
  if (!object.is_object()) {
    throw NoTask("must be a JSON object");
  }
  Task task{.context = text_at(object, "context")};
  const auto choices = object.find("choices");
  if (choices == object.end()) {
    task.choices.push_back(continuation(text_at(object, "target"), "target"));
    return task;
  }
  if (!choices->is_array() || choices->size() < 2) {
    throw NoTask("\"choices\" must be a list of two or more");
  }
  for (std::size_t i = 0; i < choices->size(); ++i) {
    task.choices.push_back(continuation((*choices)[i], fmt::format("choices.{}", i)));
  }
  const auto answer = object.find("answer");
  if (answer == object.end() || !answer->is_number_unsigned() ||
      answer->get<std::uint64_t>() >= task.choices.size()) {
    throw NoTask(fmt::format("\"answer\" must be 0 to {}, the number of the right choice",
                             task.choices.size() - 1));
  }
  task.answer = answer->get<std::size_t>();
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
    const auto refuse = [&](const std::exception& error) {
      throw FileError(fmt::format("{}: line {}: {}", path, number, error.what()));
    };
    try {
      Task& task = tasks.emplace_back(task_of(parse_strict_json(line)));
      task.line = number;
    } catch (const NoTask& error) {
      refuse(error);
    } catch (const JsonSyntaxError& error) {
      refuse(error);
    }
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
