#pragma once

#include <cstddef>
#include <string>

#include "core/checkpoint/contents.h"

namespace slackline {

inline constexpr std::size_t kShardBytes = std::size_t{1} << 30U;  // of data in one shard file

// Writes a checkpoint and returns when it is on the disk under its name: shards, further files and
// last the manifest go to partial_path(path), which is renamed when all is synced. Each
// tensor group has shards of its own (weights-00000.safetensors), begun anew when one holds
// `shard_bytes`; a piece is never split. A checkpoint of that name is replaced; anything else of
// that name is refused. On failure nothing is left of it and what was there before is untouched.
//
// The parent directory is created when it is absent. REQUIRES: names are "<group>/<name>"; the
// pieces given for a tensor cover it.
void write_checkpoint(const std::string& path,
                      const CheckpointContents& contents,
                      std::size_t shard_bytes = kShardBytes);

}  // namespace slackline
