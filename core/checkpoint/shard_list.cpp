#include "core/checkpoint/shard_list.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/check.h"
#include "core/checkpoint/manifest_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

ShardList read_list(JsonReader reader) {
  ShardList list;
  list.step = reader.integer("step", {.min = 0});
  list.rank =
      static_cast<int>(reader.integer("rank", {.min = 0, .max = std::numeric_limits<int>::max()}));
  list.failure = static_cast<ExitCode>(reader.integer("failure"));
  list.message = reader.string("message");
  list.files = read_files(reader.section("files"));
  list.tensors = read_tensors(reader.section("tensors"), list.files, Coverage::partial);
  reader.finish();
  return list;
}

void add_tensor(Manifest& manifest, const std::string& name, const ManifestTensor& own, int rank) {
  const auto [entry, first] = manifest.tensors.emplace(name, own);
  if (first) {
    return;
  }
  ManifestTensor& tensor = entry->second;
  SL_CHECK(tensor.shape == own.shape && tensor.dtype == own.dtype,
           fmt::format("rank {} disagrees with those before it about {}", rank, name));
  tensor.pieces.insert(tensor.pieces.end(), own.pieces.begin(), own.pieces.end());
}

}  // namespace

std::string shard_list_text(const ShardList& list) {
  const Json json = {{"step", list.step},
                     {"rank", list.rank},
                     {"failure", static_cast<int>(list.failure)},
                     {"message", list.message},
                     {"files", files_json(list.files)},
                     {"tensors", tensors_json(list.tensors)}};
  // A message may quote a path that is not UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ShardList parse_shard_list(std::string_view text) {
  try {
    return read_list(JsonReader::parse(text, "not a shard list"));
  } catch (const ConfigError& error) {
    throw Error(std::string("shard list: ") + error.what());
  }
}

void require_written(const std::string& path, std::span<const ShardList> lists) {
  const auto failed = [](const ShardList& list) { return list.failure != ExitCode::done; };
  const auto first = std::find_if(lists.begin(), lists.end(), failed);
  if (first == lists.end()) {
    return;
  }
  const auto others = std::count_if(first + 1, lists.end(), failed);
  const std::string message = fmt::format("{}: not saved: rank {}: {}{}",
                                          path,
                                          first->rank,
                                          first->message,
                                          others > 0 ? fmt::format(" (and {} more)", others) : "");
  if (first->failure == ExitCode::file) {
    throw FileError(message);
  }
  throw Error(message, first->failure);
}

Manifest merge(std::span<const ShardList> lists) {
  SL_CHECK(!lists.empty(), "a checkpoint is written by somebody");
  Manifest manifest{.step = lists.front().step};
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const ShardList& list = lists[i];
    SL_CHECK(list.rank == static_cast<int>(i) && list.step == manifest.step,
             fmt::format("shard list {} is of rank {} and step {}", i, list.rank, list.step));
    for (const auto& [name, file] : list.files) {
      SL_CHECK(manifest.files.emplace(name, file).second,
               fmt::format("two ranks wrote {}; the second is rank {}", name, list.rank));
    }
    for (const auto& [name, tensor] : list.tensors) {
      add_tensor(manifest, name, tensor, list.rank);
    }
  }
  return manifest;
}

}  // namespace slackline
