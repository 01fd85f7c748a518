#include "tools/run/run_checkpoints.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "core/checkpoint/shared_directory.h"
#include "core/comm/text_exchange.h"
#include "core/error.h"
#include "tools/run/first_rank.h"

namespace slackline {

RunCheckpoints::RunCheckpoints(std::string directory, std::size_t keep, Communicator& world)
    : directory_(std::move(directory)),
      world_(&world),
      writer_({.directory = directory_, .rank = world.rank(), .size = world.size(), .keep = keep}) {
}

void RunCheckpoints::prepare() {
  on_first_rank(*world_, [&] { writer_.remove_debris(); });
  std::string name;
  on_first_rank(*world_, [&] { name = write_probe(directory_); });
  name = broadcast_text(*world_, 0, name, "name of a probe file");
  const std::string seen = sees_probe(directory_, name) ? "yes" : "no";
  const std::vector<std::string> answers = exchange_texts(*world_, seen, "sight of a probe file");
  if (world_->rank() == 0) {
    remove_probe(directory_, name);
  }
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank] != "yes") {
      if (world_->rank() == 0) {
        remove_unused(directory_);
      }
      throw AgreedError(
          fmt::format("{}: rank {} on node {} does not see what rank 0 writes here, so its part of "
                      "a checkpoint "
                      "would be lost; choose a run.dir that all nodes share",
                      directory_,
                      rank,
                      world_->nodes()[rank]),
          ExitCode::file);
    }
  }
}

void RunCheckpoints::save(const CheckpointContents& contents) {
  finish();
  writer_.save(contents);
}

void RunCheckpoints::commit_when_written() {
  if (!writer_.is_saving()) {
    return;
  }
  double waiting = writer_.finished() ? 0.0 : 1.0;
  world_->all_reduce(Tensor(std::span(&waiting, 1)), {.what = "agreement on a written checkpoint"})
      .wait();
  if (waiting == 0.0) {
    finish();
  }
}

void RunCheckpoints::finish() {
  if (!writer_.is_saving()) {
    return;
  }
  const std::vector<std::string> texts =
      exchange_texts(*world_, shard_list_text(writer_.take()), "what ranks wrote of a checkpoint");
  std::vector<ShardList> lists;
  std::ranges::transform(texts, std::back_inserter(lists), parse_shard_list);
  on_first_rank(*world_, [&] { writer_.commit(lists); });
}

}  // namespace slackline
