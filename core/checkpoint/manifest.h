#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/region.h"
#include "core/tensor/dtype.h"

namespace slackline {

// manifest.json of a checkpoint: what a directory of shards means.
//
//   {"format": 1, "step": 100, "model": {...},
//    "tensors": {"weights/wte.weight": {"shape": [257, 64], "dtype": "f32", "pieces": [
//      {"file": "weights-00000.safetensors", "start": [0, 0], "shape": [257, 64]}]}},
//    "files": {"weights-00000.safetensors": {"bytes": 65872, "xxh3": "0123456789abcdef"}},
//    "data": {...}, "rng": ..., "tokenizer": ..., "codec": ..., "plan": ..., "layout": ...,
//    "outer": {...}, "updates": 98, "skips": 2, "xxh3": "fedcba9876543210"}
//
// `updates` is how many updates the optimizer has made; older manifests lack it, and had made one
// in every step. `skips` is how many steps in a row were skipped up to this one; absent: none.
//
// `outer` is what workers that train apart know of their rounds; absent: all ranks step together.
//
// The pieces of a tensor cover it without holes or overlaps, once for each `worker` (a data rank,
// or several of them, with state of their own) where pieces carry one. A piece lies in its file
// under piece_key(). `files` lists every file but the manifest, with XXH3-64 as 16 hexadecimal
// digits. The last key is the hash of the manifest's own text with zeros for these digits; a
// manifest that somebody wrote or changed by hand may leave it out.

inline constexpr std::int64_t kManifestFormat = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

struct ManifestPiece {
  std::string file;
  Region region;
  std::optional<std::int64_t> worker{};
};

struct ManifestTensor {
  Shape shape;
  DType dtype = DType::f32;
  std::vector<ManifestPiece> pieces{};
};

struct ManifestFile {
  std::size_t bytes = 0;
  std::uint64_t xxh3 = 0;
};

// Documents of the parts that own them, as JSON texts; empty stands for null.
struct CheckpointDocuments {
  std::string model{};      // the resolved model section of the config
  std::string data{};       // {consumed_sequences, epochs}
  std::string rng{};        // seed and what else names the streams
  std::string tokenizer{};  // how to find and use the tokenizer
  std::string codec{};
  std::string plan{};
  std::string layout{};
  std::string outer{};  // rounds of workers that train apart
};

struct Manifest {
  std::int64_t step = 0;
  std::optional<std::int64_t> updates{};
  std::int64_t skips = 0;
  CheckpointDocuments documents{};
  std::map<std::string, ManifestTensor> tensors{};  // by name with group; byte order
  std::map<std::string, ManifestFile> files{};
};

// Name of a piece inside its shard: the tensor's own when it is whole, else with "@" and the start
// indices joined by commas; "#" and the worker follow where there is one.
// weights/wte.weight, weights/wte.weight@128,0, residual/data_gradient/wte.weight#3.
[[nodiscard]] std::string piece_key(std::string_view tensor,
                                    const Shape& logical,
                                    const Region& region,
                                    std::optional<std::int64_t> worker);

// A plain name inside the checkpoint's directory: nothing that leads elsewhere.
[[nodiscard]] bool is_file_name(std::string_view name);

[[nodiscard]] std::string manifest_text(const Manifest& manifest);

// Parses and checks all that the text alone can tell, its own hash included. `path` starts the
// FileError's message.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& path);

// The same of a file, which has to be a regular one: others may never end.
[[nodiscard]] Manifest read_manifest(const std::string& path);

}  // namespace slackline
