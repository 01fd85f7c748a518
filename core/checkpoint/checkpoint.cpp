#include "core/checkpoint/checkpoint.h"

#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"
#include "core/shown_text.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

std::string describe(DType dtype, const Shape& shape) {
  return std::string(name_of(dtype)) + " " + shape.to_string();
}

std::string mismatch(const std::string& directory,
                     std::string_view name,
                     const std::string& expected,
                     const ManifestTensor& tensor) {
  return fmt::format("{}: tensor '{}': expected {}; the checkpoint has {}",
                     directory,
                     shown_value(name),
                     expected,
                     describe(tensor.dtype, tensor.shape));
}

}  // namespace

Checkpoint::Checkpoint(std::string directory) : directory_(std::move(directory)) {
  manifest_ = read_manifest(directory_ + "/" + std::string(kManifestName));
  check_sizes();
}

void Checkpoint::check_sizes() const {
  for (const auto& [name, file] : manifest_.files) {
    const std::string path = directory_ + "/" + name;
    if (!is_regular_file(path)) {
      throw FileError(fmt::format("{}: listed in {} but no such file", path, kManifestName));
    }
    const std::size_t bytes = file_bytes(path);
    if (bytes != file.bytes) {
      throw FileError(fmt::format("{}: {}: {} says {} bytes; got {}",
                                  path,
                                  bytes < file.bytes ? "truncated" : "too long",
                                  kManifestName,
                                  file.bytes,
                                  bytes));
    }
  }
}

bool Checkpoint::has_file(std::string_view name) const {
  return manifest_.files.contains(std::string(name));
}

std::string Checkpoint::file(std::string_view name) const {
  if (!has_file(name)) {
    throw FileError(fmt::format("{}: the checkpoint has no file {}", directory_, name));
  }
  return directory_ + "/" + std::string(name);
}

void Checkpoint::verify() const {
  for (const auto& [name, file] : manifest_.files) {
    verify_file(name, file);
  }
}

void Checkpoint::verify_file(const std::string& name, const ManifestFile& file) const {
  const MappedFile mapped(directory_ + "/" + name);
  const std::uint64_t hash = xxh3(mapped.bytes());
  if (hash != file.xxh3) {
    throw FileError(fmt::format("{}: damaged: {} says XXH3 {}; got {}",
                                mapped.path(),
                                kManifestName,
                                hex_text(file.xxh3),
                                hex_text(hash)));
  }
}

void Checkpoint::require_pieces(std::string_view name) {
  const ManifestTensor& tensor = find(name);
  for (const ManifestPiece& piece : tensor.pieces) {
    static_cast<void>(piece_bytes(name, tensor, piece));
  }
}

void Checkpoint::read(std::string_view name,
                      Tensor destination,
                      std::optional<std::int64_t> worker) {
  const ManifestTensor& tensor = find(name);
  if (tensor.dtype != destination.dtype() || tensor.shape != destination.shape()) {
    throw FileError(
        mismatch(directory_, name, describe(destination.dtype(), destination.shape()), tensor));
  }
  const Region whole = whole_region(tensor.shape);
  read_part(name, whole, destination, {tensor.shape, whole}, worker);
}

void Checkpoint::read_part(std::string_view name,
                           const Region& logical,
                           Tensor memory,
                           const LocalPlace& place,
                           std::optional<std::int64_t> worker) {
  SL_CHECK(place.region.shape == logical.shape && is_held(place, memory.num_elements()),
           "place of " + std::string(name));
  const ManifestTensor& tensor = find(name);
  if (tensor.dtype != memory.dtype() || !is_inside(logical, tensor.shape)) {
    throw FileError(
        mismatch(directory_, name, describe(memory.dtype(), logical.shape) + " inside it", tensor));
  }
  bool found = false;
  const HostTensor destination(memory);  // a part of it may be all that is read
  for (const ManifestPiece& piece : tensor.pieces) {
    if (piece.worker != worker) {
      continue;
    }
    found = true;
    if (const std::optional<Region> part = intersection(piece.region, logical)) {
      const Region& from = piece.region;
      const Region& to = place.region;
      auto* bytes = const_cast<std::byte*>(piece_bytes(name, tensor, piece).data());
      const std::vector<std::int64_t> zero(from.start.size(), 0);
      copy_rectangle({bytes, from.shape, moved(part->start, from.start, zero)},
                     {static_cast<std::byte*>(destination.tensor().raw()),
                      place.shape,
                      moved(part->start, logical.start, to.start),
                      place.first},
                     part->shape,
                     size_of(tensor.dtype));
    }
  }
  destination.write_back();
  if (!found) {
    throw FileError(fmt::format("{}: tensor '{}' has no pieces of {}",
                                directory_,
                                name,
                                worker ? "worker " + std::to_string(*worker) : "all workers"));
  }
}

const ManifestTensor& Checkpoint::find(std::string_view name) const {
  const auto found = manifest_.tensors.find(std::string(name));
  if (found == manifest_.tensors.end()) {
    throw FileError(fmt::format("{}: the checkpoint has no tensor '{}'", directory_, name));
  }
  return found->second;
}

const SafetensorsFile& Checkpoint::shard(const std::string& file) {
  auto found = shards_.find(file);
  if (found == shards_.end()) {
    found = shards_.emplace(file, SafetensorsFile(directory_ + "/" + file)).first;
  }
  return found->second;
}

std::span<const std::byte> Checkpoint::piece_bytes(std::string_view name,
                                                   const ManifestTensor& tensor,
                                                   const ManifestPiece& piece) {
  const SafetensorsFile& file = shard(piece.file);
  const std::string key = piece_key(name, tensor.shape, piece.region, piece.worker);
  const SafetensorsFile::Entry* entry = file.find(key);
  if (entry == nullptr || entry->dtype != tensor.dtype || entry->shape != piece.region.shape) {
    throw FileError(fmt::format("{}: tensor '{}': {} says {}; the file has {}",
                                file.path(),
                                shown_value(key),
                                kManifestName,
                                describe(tensor.dtype, piece.region.shape),
                                entry == nullptr ? "none" : describe(entry->dtype, entry->shape)));
  }
  return file.bytes(*entry);
}

}  // namespace slackline
