#include "core/checkpoint/checkpoint_writer.h"

#include <utility>

#include "core/check.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/write_checkpoint.h"

namespace slackline {

CheckpointWriter::CheckpointWriter(Options options) : options_(std::move(options)) {
  SL_CHECK(options_.keep >= 1, "a run keeps at least one checkpoint");
}

void CheckpointWriter::save(const CheckpointContents& contents) {
  wait();
  remove_partial_checkpoints(options_.directory);
  write_.start(contents, [this](const CheckpointContents& staged) {
    write_checkpoint(
        checkpoint_path(options_.directory, staged.step), staged, options_.shard_bytes);
    remove_old_checkpoints(options_.directory, options_.keep, staged.step);
  });
}

}  // namespace slackline
