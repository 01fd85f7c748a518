#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/checkpoint/manifest.h"
#include "core/error.h"

namespace slackline {

// What one rank has written of a checkpoint, or why it could not: its part of the manifest. A
// value that travels to rank 0 as text.
struct ShardList {
  std::int64_t step = 0;
  int rank = 0;
  std::map<std::string, ManifestTensor> tensors{};  // this rank's pieces
  std::map<std::string, ManifestFile> files{};
  ExitCode failure = ExitCode::done;  // of what kind the failure was
  std::string message{};              // what went wrong; empty unless it failed
};

[[nodiscard]] std::string shard_list_text(const ShardList& list);

// Reads what shard_list_text wrote. Throws Error for anything else.
[[nodiscard]] ShardList parse_shard_list(std::string_view text);

// Throws when a rank could not write: "<path>: not saved: rank 3: <its message>", with the code of
// the first such rank. Ranks that all hold all lists thus fail alike.
void require_written(const std::string& path, std::span<const ShardList> lists);

// The lists' tensors and files as one manifest, pieces in rank order. Throws Error when ranks
// disagree about a tensor or two wrote a file of one name. Whether the pieces cover their tensors
// is not looked at. REQUIRES: list i is rank i's; all are of one step.
[[nodiscard]] Manifest merge(std::span<const ShardList> lists);

}  // namespace slackline
