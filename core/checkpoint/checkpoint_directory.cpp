#include "core/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "core/checkpoint/manifest.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/log.h"

namespace slackline {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartialPrefix = ".step-";
constexpr std::string_view kPartialSuffix = ".partial";

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = -1;
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  }
  return step >= 0 && name == step_name(step) ? std::optional(step) : std::nullopt;
}

}  // namespace

std::string checkpoint_path(const std::string& checkpoints, std::int64_t step) {
  return checkpoints + "/" + step_name(step);
}

std::string partial_path(const std::string& path) {
  const fs::path target(path);
  const std::string name = fmt::format(".{}{}", target.filename().string(), kPartialSuffix);
  return (target.parent_path() / name).string();
}

std::vector<StepDirectory> list_checkpoints(const std::string& checkpoints) {
  std::vector<StepDirectory> found;
  for (const std::string& name : subdirectories(checkpoints)) {
    const std::optional<std::int64_t> step = step_of(name);
    if (!step) {
      continue;
    }
    const std::string path = fmt::format("{}/{}", checkpoints, name);
    if (path_exists(path + "/" + std::string(kManifestName))) {
      found.push_back({*step, path});
    } else {
      log_warning(path + ": has no manifest.json, ignored: not a complete checkpoint");
    }
  }
  std::sort(found.begin(), found.end(), [](const StepDirectory& a, const StepDirectory& b) {
    return a.step < b.step;
  });
  return found;
}

void refuse_incomplete_checkpoints(const std::string& checkpoints,
                                   std::int64_t after,
                                   std::int64_t last) {
  for (const std::string& name : subdirectories(checkpoints)) {
    const std::string path = fmt::format("{}/{}", checkpoints, name);
    const std::int64_t step = step_of(name).value_or(after);
    if (after < step && step <= last && !path_exists(path + "/" + std::string(kManifestName))) {
      throw FileError(path +
                      ": has no manifest.json, so it is no complete checkpoint, and the run would "
                      "save there once it gets to that step; move it away");
    }
  }
}

std::optional<std::string> latest_checkpoint(const std::string& checkpoints) {
  const std::vector<StepDirectory> all = list_checkpoints(checkpoints);
  return all.empty() ? std::nullopt : std::optional(all.back().path);
}

void try_to_remove(const std::string& path) {
  try {
    remove_tree(path);
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

void remove_partial_checkpoints(const std::string& checkpoints) {
  for (const std::string& name : subdirectories(checkpoints)) {
    if (name.starts_with(kPartialPrefix) && name.ends_with(kPartialSuffix)) {
      try_to_remove(fmt::format("{}/{}", checkpoints, name));  // a save of the step meets the rest
    }
  }
}

void remove_old_checkpoints(const std::string& checkpoints, std::size_t keep, std::int64_t step) {
  try {
    std::vector<StepDirectory> old = list_checkpoints(checkpoints);
    old.resize(old.size() - std::min(keep, old.size()));
    for (const StepDirectory& directory : old) {
      if (directory.step != step) {
        rename_and_sync(directory.path, partial_path(directory.path));
        remove_tree(partial_path(directory.path));
      }
    }
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

}  // namespace slackline
