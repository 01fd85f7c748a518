#include "tools/run/same_files.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/manifest.h"
#include "core/comm/text_exchange.h"
#include "core/error.h"
#include "core/file_fingerprint.h"
#include "core/file_io.h"
#include "core/hash.h"
#include "core/host_name.h"
#include "core/shown_text.h"
#include "data/formats/token_file.h"
#include "tools/record/run_directory.h"
#include "tools/record/run_lock.h"
#include "tools/run/first_rank.h"

namespace slackline {

namespace {

enum class Compared { sampled, whole, stated };

// A file, or another thing with a path, that all hosts must hold alike.
struct StartItem {
  std::string path{};
  Compared compared = Compared::sampled;
  std::string statement{};  // what `stated` compares
};

void add_data(const DataConfig& data, std::vector<StartItem>& items) {
  for (const std::vector<DataSource>* sources : {&data.train, &data.valid}) {
    for (const DataSource& source : *sources) {
      for (const std::string& path : token_file_paths(source.path)) {
        const bool index = path.ends_with(".idx");
        items.push_back({.path = path, .compared = index ? Compared::whole : Compared::sampled});
      }
    }
  }
}

// The step, the manifest and the files that it lists. What is wrong with them is found when the
// checkpoint is opened.
void add_checkpoint(const std::string& path, std::vector<StartItem>& items) {
  const std::string manifest = path + "/" + std::string(kManifestName);
  try {
    const Manifest found = read_manifest(manifest);
    items.push_back({.path = path,
                     .compared = Compared::stated,
                     .statement = fmt::format("step {}", found.step)});
    items.push_back({.path = manifest, .compared = Compared::whole});
    for (const auto& [name, file] : found.files) {
      items.push_back({.path = fmt::format("{}/{}", path, name)});
    }
  } catch (const FileError& error) {
    items.push_back(
        {.path = path, .compared = Compared::stated, .statement = "no whole checkpoint"});
  }
}

// Nothing where there is none, or none can be looked for.
std::optional<std::string> newest_checkpoint(const std::string& checkpoints) {
  try {
    return latest_checkpoint(checkpoints);
  } catch (const FileError&) {
    return std::nullopt;
  }
}

// Adds the newest of the run's own checkpoints, which `--resume` takes; else what the config names.
void add_start(const TrainConfig& config, bool resume, std::vector<StartItem>& items) {
  if (resume) {
    const std::string checkpoints = RunDirectory(config.run.dir).checkpoints();
    const std::optional<std::string> newest = newest_checkpoint(checkpoints);
    items.push_back({.path = checkpoints,
                     .compared = Compared::stated,
                     .statement = newest.value_or("no checkpoint")});
    if (newest) {
      add_checkpoint(*newest, items);
      return;
    }
  }
  for (const std::string* path : {&config.checkpoint.resume_from, &config.checkpoint.init_from}) {
    if (!path->empty()) {
      add_checkpoint(*path, items);
      return;
    }
  }
}

std::vector<StartItem> items_of(const TrainConfig& config, bool resume) {
  std::vector<StartItem> items;
  if (config.device != Device::rehearsal) {
    add_data(config.data, items);
    add_start(config, resume, items);
  }
  const std::string links = config.network.emulates() ? config.network.links : "";
  for (const std::string& path : {config.rehearsal.costs, config.compress.plan, links}) {
    if (!path.empty()) {
      items.push_back({.path = path, .compared = Compared::whole});
    }
  }
  return items;
}

// Equal for ranks of one host that see the same files.
std::string view_of(const std::vector<StartItem>& items) {
  std::string text;
  for (const StartItem& item : items) {
    text += fmt::format("{}\n{}\n{}\n", item.path, item.statement, file_identity(item.path));
  }
  return hex_text(xxh3(std::as_bytes(std::span(text))));
}

std::string state_of(const StartItem& item) {
  switch (item.compared) {
    case Compared::stated:
      return item.statement;
    case Compared::whole:
      return whole_contents(item.path);
    case Compared::sampled:
      break;
  }
  return sampled_contents(item.path);
}

// Two lines for each item, the path and its state, after one with the host.
std::string states_text(const std::vector<StartItem>& items) {
  std::string text = host_name() + "\n";
  for (const StartItem& item : items) {
    text += fmt::format("{}\n{}\n", shown_line(item.path), shown_line(state_of(item)));
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(std::move(line));
  }
  return lines;
}

// The first item of which this rank's host has another state than rank 0's; empty where all agree.
std::string first_difference(const std::string& own_text, const std::string& first_text, int rank) {
  const std::vector<std::string> own = lines_of(own_text);
  const std::vector<std::string> first = lines_of(first_text);
  const std::size_t count = std::min(own.size(), first.size());
  for (std::size_t i = 1; i + 1 < count; i += 2) {
    if (own[i] != first[i] || own[i + 1] != first[i + 1]) {
      return fmt::format(
          "{}: all hosts must start from the same; host {} (rank {}) has {}; host {} (rank 0) has "
          "{}",
          own[i],
          own[0],
          rank,
          own[i + 1],
          first[0],
          first[i + 1]);
    }
  }
  return "";
}

// Whether no rank before this one stands on its host and sees the same files.
bool is_first_to_see(const std::vector<std::string>& views, const Communicator& world) {
  const auto own = static_cast<std::size_t>(world.rank());
  for (std::size_t rank = 0; rank < own; ++rank) {
    if (world.hosts()[rank] == world.hosts()[own] && views[rank] == views[own]) {
      return false;
    }
  }
  return true;
}

}  // namespace

void require_same_files(Communicator& world, const TrainConfig& config, bool resume) {
  if (world.size() == 1) {
    return;
  }
  std::optional<LockedFile> lock;  // no other run writes the directory while its files are compared
  on_first_rank(world, [&] { lock = lock_existing_run(config.run.dir); });
  const std::vector<StartItem> items = items_of(config, resume);
  const bool reads =
      is_first_to_see(exchange_texts(world, view_of(items), "which files ranks see"), world);
  const std::string own = reads ? states_text(items) : "";
  const std::string first = broadcast_text(world, 0, own, "files that rank 0 starts from");
  const std::string difference = reads ? first_difference(own, first, world.rank()) : "";
  for (const std::string& found :
       exchange_texts(world, difference, "files that differ between hosts")) {
    if (!found.empty()) {
      throw AgreedError(found, ExitCode::config);
    }
  }
}

}  // namespace slackline
