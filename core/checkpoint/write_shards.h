#pragma once

#include <cstddef>
#include <string>

#include "core/checkpoint/contents.h"
#include "core/checkpoint/shard_list.h"

namespace slackline {

inline constexpr std::size_t kShardBytes = std::size_t{1} << 30U;  // of data in one shard file

struct ShardOptions {
  int rank = 0;
  int size = 1;
  std::size_t shard_bytes = kShardBytes;
};

// Writes one rank's pieces into `directory`, which is created when it is absent, and returns what
// it wrote when that is on the disk. Each tensor group has shards of its own, begun anew when one
// holds `shard_bytes`; a piece is never split. They are called weights-00000.safetensors, or,
// where several ranks write, weights-00003-00000.safetensors with the rank first. On failure it
// throws, and what this rank wrote before may stay.
//
// REQUIRES: names are "<group>/<name>"; pieces have no place (staged() sees to that).
[[nodiscard]] ShardList write_shards(const std::string& directory,
                                     const CheckpointContents& contents,
                                     const ShardOptions& options);

}  // namespace slackline
