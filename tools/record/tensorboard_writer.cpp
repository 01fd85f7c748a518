#include "tools/record/tensorboard_writer.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"
#include "core/host_name.h"
#include "tools/record/event_record.h"

namespace slackline {

double unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

TensorboardWriter::TensorboardWriter(const std::string& directory, std::int64_t start_seconds) {
  const std::string name =
      fmt::format("{}/events.out.tfevents.{}.{}", directory, start_seconds, host_name());
  for (int attempt = 0; file_ == nullptr; ++attempt) {
    path_ = attempt == 0 ? name : fmt::format("{}.{}", name, attempt);
    file_.reset(std::fopen(path_.c_str(), "wbx"));
    if (file_ == nullptr && errno != EEXIST) {
      fail("create");
    }
  }
  write(file_version_record(static_cast<double>(start_seconds)));
  flush();
}

void TensorboardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  write(scalar_record(
      {.wall_time = unix_seconds(), .step = step, .tag = tag, .value = static_cast<float>(value)}));
}

void TensorboardWriter::flush() {
  if (std::fflush(file_.get()) != 0) {
    fail("write");
  }
}

void TensorboardWriter::write(std::string_view record) {
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size()) {
    fail("write");
  }
}

void TensorboardWriter::fail(std::string_view action) const {
  throw FileError(fmt::format("{}: cannot {}: {}", path_, action, std::strerror(errno)));
}

}  // namespace slackline
