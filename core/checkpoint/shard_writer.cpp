#include "core/checkpoint/shard_writer.h"

#include <new>
#include <utility>

#include "core/check.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/staging.h"
#include "core/checkpoint/write_checkpoint.h"
#include "core/log.h"
#include "core/threads/start_thread.h"

namespace slackline {

ShardWriter::ShardWriter(Options options) : options_(std::move(options)) {
  SL_CHECK(options_.keep >= 1, "a run keeps at least one checkpoint");
}

ShardWriter::~ShardWriter() {
  if (!is_saving()) {
    return;
  }
  if (const ShardList list = take(); list.failure != ExitCode::done) {
    log_error("checkpoint not saved: " + list.message);
  }
}

void ShardWriter::remove_debris() const {
  if (options_.rank == 0) {
    remove_partial_checkpoints(options_.directory);
  }
}

void ShardWriter::save(const CheckpointContents& contents) {
  SL_CHECK(!is_saving(), "the save before was not taken");
  head_ = {.step = contents.step,
           .updates = contents.updates,
           .skips = contents.skips,
           .documents = contents.documents,
           .files = contents.files};
  std::packaged_task<ShardList()> write([this, copies = staged(contents, staging_)] {
    return write_shards(
        partial_path(checkpoint_path(options_.directory, copies.step)),
        copies,
        {.rank = options_.rank, .size = options_.size, .shard_bytes = options_.shard_bytes});
  });
  std::future<ShardList> list = write.get_future();
  thread_ = start_thread("a checkpoint", std::move(write));
  list_ = std::move(list);
}

ShardList ShardWriter::take() {
  SL_CHECK(is_saving(), "nothing is being saved");
  thread_.join();
  ShardList failed{.step = head_.step, .rank = options_.rank, .failure = ExitCode::bug};
  try {
    return list_.get();
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
