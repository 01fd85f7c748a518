#include "core/checkpoint/staged_write.h"

#include <utility>

#include "core/check.h"
#include "core/checkpoint/staging.h"
#include "core/log.h"
#include "core/threads/start_thread.h"

namespace slackline {

StagedWrite::~StagedWrite() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_error(std::string("checkpoint not saved: ") + error.what());
  }
}

void StagedWrite::start(const CheckpointContents& contents, Body write) {
  SL_CHECK(!thread_.joinable(), "the write before is not finished");
  CheckpointContents copies = staged(contents, staging_);
  finished_ = false;
  thread_ = start_thread(
      "a checkpoint",
      [this, copies = std::move(copies), write = std::move(write)] { run(copies, write); });
}

void StagedWrite::wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (failure_ != nullptr) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void StagedWrite::run(const CheckpointContents& staged, const Body& write) noexcept {
  try {
    write(staged);
  } catch (...) {
    failure_ = std::current_exception();
  }
  finished_ = true;
}

}  // namespace slackline
