#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/checkpoint/manifest.h"
#include "core/tensor/safetensors.h"
#include "core/tensor/tensor.h"

namespace slackline {

// A checkpoint on the disk, for reading. Opening reads the manifest and checks that every file it
// lists is there with the right size; verify() reads the files. Every refusal is a FileError that
// names file and rule. Shards are mapped as they are needed. Used by one thread.
class Checkpoint {
 public:
  explicit Checkpoint(std::string directory);

  [[nodiscard]] const std::string& path() const { return directory_; }

  [[nodiscard]] std::int64_t step() const { return manifest_.step; }

  // Returns the number of updates the optimizer has made; absent in older checkpoints, and where
  // weights alone were saved.
  [[nodiscard]] const std::optional<std::int64_t>& updates() const { return manifest_.updates; }

  // Returns the number of steps in a row that were skipped up to this one.
  [[nodiscard]] std::int64_t skips() const { return manifest_.skips; }

  // Model, data position, RNG and the other documents as JSON texts.
  [[nodiscard]] const CheckpointDocuments& documents() const { return manifest_.documents; }

  // By name with group, in byte order.
  [[nodiscard]] const std::map<std::string, ManifestTensor>& tensors() const {
    return manifest_.tensors;
  }

  // Every file but the manifest, by name.
  [[nodiscard]] const std::map<std::string, ManifestFile>& files() const { return manifest_.files; }

  [[nodiscard]] bool has_file(std::string_view name) const;
  // Path of a further file (tokenizer.json). Throws when the checkpoint does not list it.
  [[nodiscard]] std::string file(std::string_view name) const;

  // Hashes every file and refuses one that differs from the manifest, with both hashes. Do it
  // before reading.
  void verify() const;

  // Throws unless the shards hold all pieces of a tensor as the manifest says: so nobody makes room
  // for more than there is.
  void require_pieces(std::string_view name);

  // Fills `destination` with a whole tensor, put together from its pieces. Throws when there is no
  // such tensor, or element type or shape differ (another model's checkpoint).
  void read(std::string_view name,
            Tensor destination,
            std::optional<std::int64_t> worker = std::nullopt);

  // Fills `place` in `memory`, of the same shape, with a rectangle of the logical tensor; what else
  // lies in `memory` stays. REQUIRES: is_held(place, memory.num_elements()).
  void read_part(std::string_view name,
                 const Region& logical,
                 Tensor memory,
                 const LocalPlace& place,
                 std::optional<std::int64_t> worker = std::nullopt);

 private:
  void check_sizes() const;
  void verify_file(const std::string& name, const ManifestFile& file) const;
  [[nodiscard]] const ManifestTensor& find(std::string_view name) const;
  [[nodiscard]] const SafetensorsFile& shard(const std::string& file);
  [[nodiscard]] std::span<const std::byte> piece_bytes(std::string_view name,
                                                       const ManifestTensor& tensor,
                                                       const ManifestPiece& piece);

  std::string directory_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> shards_;
};

}  // namespace slackline
