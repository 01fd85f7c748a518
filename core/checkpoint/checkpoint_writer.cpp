#include "core/checkpoint/checkpoint_writer.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/error.h"
#include "core/log.h"

namespace slackline {

CheckpointWriter::CheckpointWriter(Options options) : options_(std::move(options)) {
  SL_CHECK(options_.keep >= 1, "a run keeps at least one checkpoint");
}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_error(std::string("checkpoint not saved: ") + error.what());
  }
}

void CheckpointWriter::save(const CheckpointContents& contents) {
  wait();
  remove_partial_checkpoints(options_.directory);
  thread_ = std::thread([this, staged = stage(contents)] { write(staged); });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (failure_ != nullptr) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

CheckpointContents CheckpointWriter::stage(const CheckpointContents& contents) {
  const std::size_t bytes = staging_bytes(contents);
  if (staging_.bytes() < bytes) {
    staging_ = Buffer();  // gives the old one back before asking for the new one
    staging_ = Buffer("checkpoint staging", bytes);
  }
  CheckpointContents staged = contents;
  std::size_t offset = 0;
  for (CheckpointTensor& tensor : staged.tensors) {
    std::byte* copy = staging_.data() + offset;
    const std::size_t size = tensor.data.bytes();
    if (size > 0) {
      std::memcpy(copy, tensor.data.raw(), size);
    }
    tensor.data = Tensor(copy, tensor.data.dtype(), tensor.data.shape());
    offset += size;
  }
  return staged;
}

void CheckpointWriter::write(const CheckpointContents& staged) noexcept {
  try {
    write_checkpoint(
        checkpoint_path(options_.directory, staged.step), staged, options_.shard_bytes);
  } catch (...) {
    failure_ = std::current_exception();
    return;
  }
  try {
    remove_old_checkpoints(options_.directory, options_.keep, staged.step);
  } catch (const Error& error) {
    log_warning(error.what());  // the new checkpoint is safe; an old one too many is no failure
  }
}

std::size_t staging_bytes(const CheckpointContents& contents) {
  std::size_t bytes = 0;
  for (const CheckpointTensor& tensor : contents.tensors) {
    bytes += tensor.data.bytes();
  }
  return bytes;
}

}  // namespace slackline
