#include "core/checkpoint/write_checkpoint.h"

#include <filesystem>
#include <functional>

#include <fmt/format.h>

#include "core/check.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"

namespace slackline {

namespace {

namespace fs = std::filesystem;

std::string without_last_slash(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

void refuse_what_is_no_checkpoint(const std::string& directory) {
  if (path_exists(directory) && !path_exists(directory + "/" + std::string(kManifestName))) {
    throw FileError(directory + ": is there already and is not a checkpoint; choose another name");
  }
}

// Runs `body`; where it throws, removes the partial directory first.
void remove_on_failure(const std::string& partial, const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    try_to_remove(partial);  // the failure that led here is the one to report
    throw;
  }
}

// The shards are where rank 0 will rename them, and whole. A rank on another machine may have
// written to a disk of its own.
void check_shards(const std::string& partial, std::span<const ShardList> lists) {
  for (const ShardList& list : lists) {
    for (const auto& [name, file] : list.files) {
      const std::string path = fmt::format("{}/{}", partial, name);
      const bool found = is_regular_file(path);
      const std::size_t bytes = found ? file_bytes(path) : 0;
      if (!found || bytes != file.bytes) {
        throw FileError(with_hint(fmt::format("{}: rank {} wrote {} bytes, rank 0 finds {}",
                                              path,
                                              list.rank,
                                              file.bytes,
                                              found ? std::to_string(bytes) : "no such file"),
                                  "all ranks need one run directory"));
      }
    }
  }
}

// Adds what is not shards, the manifest last.
void write_head(const std::string& partial, const CheckpointContents& head, Manifest manifest) {
  manifest.documents = head.documents;
  manifest.updates = head.updates;
  manifest.skips = head.skips;
  for (const auto& [name, content] : head.files) {
    SL_CHECK(is_file_name(name) && !manifest.files.contains(name), "file name " + name);
    write_file_atomically(fmt::format("{}/{}", partial, name), content);
    manifest.files[name] = {content.size(), xxh3(std::as_bytes(std::span(content)))};
  }
  const std::string path = partial + "/" + std::string(kManifestName);
  const std::string text = manifest_text(manifest);
  static_cast<void>(parse_manifest(text, path));  // never commit what cannot be read back
  write_file_atomically(path, text);
}

// Makes `partial` the checkpoint of that name. One that is there changes names with it, so that one
// of both has it at any moment. Where the file system cannot do that, the old one loses its name
// for a moment, and gets it back if the new one does not take it.
// The old one that cannot be removed stays behind, under a name that no checkpoint has.
void put_in_place(const std::string& partial, const std::string& directory) {
  if (!path_exists(directory)) {
    rename_and_sync(partial, directory);
    return;
  }
  if (exchange_and_sync(partial, directory)) {
    try_to_remove(partial);
    return;
  }
  const std::string replaced = partial_path(directory + ".replaced");
  remove_tree(replaced);
  rename_and_sync(directory, replaced);
  try {
    rename_and_sync(partial, directory);
  } catch (...) {
    rename_and_sync(replaced, directory);
    throw;
  }
  try_to_remove(replaced);
}

}  // namespace

void write_checkpoint(const std::string& path,
                      const CheckpointContents& contents,
                      std::size_t shard_bytes) {
  const std::string directory = without_last_slash(path);
  refuse_what_is_no_checkpoint(directory);
  const std::string partial = partial_path(directory);
  ShardList list;
  remove_on_failure(partial, [&] {
    remove_tree(partial);
    list = write_shards(partial, contents, {.shard_bytes = shard_bytes});
  });
  commit_checkpoint(directory, contents, {&list, 1});
}

void commit_checkpoint(const std::string& path,
                       const CheckpointContents& head,
                       std::span<const ShardList> lists) {
  const std::string directory = without_last_slash(path);
  const std::string partial = partial_path(directory);
  remove_on_failure(partial, [&] {
    require_written(directory, lists);
    refuse_what_is_no_checkpoint(directory);
    Manifest manifest = merge(lists);
    SL_CHECK_EQ(manifest.step, head.step);
    check_shards(partial, lists);
    make_directories(partial);
    write_head(partial, head, std::move(manifest));
    put_in_place(partial, directory);
  });
}

}  // namespace slackline
