#include "core/checkpoint/shard_writer.h"

#include <new>
#include <utility>

#include "core/check.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/write_checkpoint.h"

namespace slackline {

ShardWriter::ShardWriter(Options options) : options_(std::move(options)) {
  SL_CHECK(options_.keep >= 1, "a run keeps at least one checkpoint");
}

void ShardWriter::remove_debris() const {
  if (options_.rank == 0) {
    remove_partial_checkpoints(options_.directory);
  }
}

void ShardWriter::save(const CheckpointContents& contents) {
  SL_CHECK(!is_saving_, "the save before was not taken");
  head_ = {.step = contents.step,
           .updates = contents.updates,
           .skips = contents.skips,
           .documents = contents.documents,
           .files = contents.files};
  list_ = {};
  write_.start(contents, [this](const CheckpointContents& staged) {
    list_ = write_shards(
        partial_path(checkpoint_path(options_.directory, staged.step)),
        staged,
        {.rank = options_.rank, .size = options_.size, .shard_bytes = options_.shard_bytes});
  });
  is_saving_ = true;
}

ShardList ShardWriter::take() {
  SL_CHECK(std::exchange(is_saving_, false), "nothing is being saved");
  ShardList failed{.step = head_.step, .rank = options_.rank, .failure = ExitCode::bug};
  try {
    write_.wait();
    return std::move(list_);
  } catch (const Error& error) {
    failed.failure = error.exit_code();
    failed.message = error.what();
  } catch (const std::bad_alloc&) {
    failed.failure = ExitCode::device;
    failed.message = "out of host memory";
  } catch (const std::exception& error) {
    failed.message = error.what();
  }
  return failed;
}

void ShardWriter::commit(std::span<const ShardList> lists) {
  SL_CHECK_EQ(options_.rank, 0);
  SL_CHECK_EQ(static_cast<int>(lists.size()), options_.size);
  commit_checkpoint(checkpoint_path(options_.directory, head_.step), head_, lists);
  remove_old_checkpoints(options_.directory, options_.keep, head_.step);
}

}  // namespace slackline
