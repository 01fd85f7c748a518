#include "core/checkpoint/write_checkpoint.h"

#include <filesystem>

#include <fmt/format.h>

#include "core/check.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/safetensors.h"

namespace slackline {

namespace {

struct Shard {
  std::string file;
  std::vector<NamedTensor> pieces;
};

// Deals pieces out to shards in the order given, and notes in the manifest where each one goes.
class ShardPlan {
 public:
  ShardPlan(std::size_t shard_bytes, Manifest& manifest)
      : shard_bytes_(shard_bytes), manifest_(manifest) {}

  void add(const CheckpointTensor& piece) {
    const std::size_t slash = piece.name.find('/');
    SL_CHECK(slash != std::string::npos, "a tensor needs a group: " + piece.name);
    Shard& shard = shard_for(piece.name.substr(0, slash), piece.data.bytes());
    const Region region = piece.region();
    SL_CHECK(is_inside(region, piece.logical_shape()), "piece of " + piece.name);
    ManifestTensor& tensor =
        manifest_.tensors
            .try_emplace(piece.name, ManifestTensor{piece.logical_shape(), piece.data.dtype()})
            .first->second;
    SL_CHECK(tensor.shape == piece.logical_shape() && tensor.dtype == piece.data.dtype(),
             "pieces disagree about " + piece.name);
    tensor.pieces.push_back({shard.file, region, piece.worker});
    shard.pieces.push_back({piece_key(piece.name, tensor.shape, region, piece.worker), piece.data});
  }

  [[nodiscard]] const std::vector<Shard>& shards() const { return shards_; }

 private:
  struct Group {
    std::size_t num_shards = 0;
    std::size_t open = 0;   // position in shards_ of the one being filled
    std::size_t bytes = 0;  // in it
  };

  Shard& shard_for(const std::string& name, std::size_t bytes) {
    Group& group = groups_[name];
    if (group.num_shards == 0 || (group.bytes > 0 && group.bytes + bytes > shard_bytes_)) {
      group.open = shards_.size();
      group.bytes = 0;
      shards_.push_back({fmt::format("{}-{:05}.safetensors", name, group.num_shards++), {}});
    }
    group.bytes += bytes;
    return shards_[group.open];
  }

  std::size_t shard_bytes_;
  Manifest& manifest_;
  std::vector<Shard> shards_{};
  std::map<std::string, Group> groups_{};
};

void write_files(const std::string& partial,
                 const CheckpointContents& contents,
                 std::size_t shard_bytes) {
  Manifest manifest{.step = contents.step, .documents = contents.documents};
  ShardPlan plan(shard_bytes, manifest);
  for (const CheckpointTensor& piece : contents.tensors) {
    plan.add(piece);
  }
  for (const Shard& shard : plan.shards()) {
    const FileSummary summary = write_safetensors(
        fmt::format("{}/{}", partial, shard.file),
        shard.pieces,
        {.metadata = {{"format", "pt"}}, .order = SafetensorsOptions::Order::reference});
    manifest.files[shard.file] = {summary.bytes, summary.xxh3};
  }
  for (const auto& [name, content] : contents.files) {
    SL_CHECK(is_file_name(name) && !manifest.files.contains(name), "file name " + name);
    write_file_atomically(fmt::format("{}/{}", partial, name), content);
    manifest.files[name] = {content.size(), xxh3(std::as_bytes(std::span(content)))};
  }
  const std::string path = partial + "/" + std::string(kManifestName);
  const std::string text = manifest_text(manifest);
  static_cast<void>(parse_manifest(text, path));  // never commit what cannot be read back
  write_file_atomically(path, text);
}

// Makes `partial` the checkpoint of that name. One that is there loses its name first; a crash
// between the two renames leaves the checkpoints before it.
void put_in_place(const std::string& partial, const std::string& directory) {
  if (!path_exists(directory)) {
    rename_and_sync(partial, directory);
    return;
  }
  const std::string replaced = partial_path(directory + ".replaced");
  remove_tree(replaced);
  rename_and_sync(directory, replaced);
  rename_and_sync(partial, directory);
  remove_tree(replaced);
}

std::string without_last_slash(const std::string& path) {
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

}  // namespace

void write_checkpoint(const std::string& path,
                      const CheckpointContents& contents,
                      std::size_t shard_bytes) {
  const std::string directory = without_last_slash(path);
  if (path_exists(directory) && !path_exists(directory + "/" + std::string(kManifestName))) {
    throw FileError(directory + ": is there already and is not a checkpoint; choose another name");
  }
  const std::string partial = partial_path(directory);
  try {
    remove_tree(partial);
    make_directories(partial);
    write_files(partial, contents, shard_bytes);
    put_in_place(partial, directory);
  } catch (...) {
    try {
      remove_tree(partial);
    } catch (const Error& error) {
      log_warning(error.what());  // the failure that led here is the one to report
    }
    throw;
  }
}

}  // namespace slackline
