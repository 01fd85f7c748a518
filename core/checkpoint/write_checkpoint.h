#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/checkpoint/contents.h"
#include "core/checkpoint/shard_list.h"
#include "core/checkpoint/write_shards.h"

namespace slackline {

// Writes a checkpoint and returns when it is on the disk under its name: shards, further files and
// last the manifest go to partial_path(path), which is renamed when all is synced. A checkpoint of
// that name is replaced; anything else of that name is refused. On failure nothing is left of it
// and what was there before is untouched.
//
// The parent directory is created when it is absent. REQUIRES: as write_shards(); the pieces given
// for a tensor cover it.
void write_checkpoint(const std::string& path,
                      const CheckpointContents& contents,
                      std::size_t shard_bytes = kShardBytes);

// Makes one checkpoint of what all ranks wrote into partial_path(path): checks that no rank failed
// and that every file is there, adds further files and manifest, and renames. Step, documents and
// further files are those of `head`; its tensors are not looked at. On failure the partial
// directory is removed and what was there before is untouched; where a rank failed, the message
// names it.
//
// Rank 0 calls it. REQUIRES: all ranks have ended writing; lists[i] is rank i's, and together their
// pieces cover each tensor once (a replicated tensor is given by one rank).
void commit_checkpoint(const std::string& path,
                       const CheckpointContents& head,
                       std::span<const ShardList> lists);

}  // namespace slackline
