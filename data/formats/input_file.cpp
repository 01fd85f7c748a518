#include "data/formats/input_file.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"

namespace slackline {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  if (is_directory(path_)) {
    throw FileError(fmt::format("{}: a text file is expected, got a directory", path_));
  }
  stream_.open(path_, std::ios::binary);
  if (!stream_) {
    throw FileError(fmt::format("{}: cannot open: {}", path_, std::strerror(errno)));
  }
  bytes_ = is_regular_file(path_) ? file_bytes(path_) : 0;  // what a pipe holds is not known
}

bool InputFile::append_to(std::string& buffer, std::size_t bytes) {
  const std::size_t before = buffer.size();
  buffer.resize(before + bytes);
  stream_.read(buffer.data() + before, static_cast<std::streamsize>(bytes));
  check_state();
  const auto got = static_cast<std::size_t>(stream_.gcount());
  buffer.resize(before + got);
  bytes_read_ += got;
  return got > 0;
}

bool InputFile::read_line(std::string& line) {
  const bool got = static_cast<bool>(std::getline(stream_, line));
  check_state();
  if (got) {
    bytes_read_ += line.size() + (stream_.eof() ? 0 : 1);
  }
  return got;
}

void InputFile::check_state() const {
  if (stream_.bad()) {
    throw FileError(
        fmt::format("{}: offset {}: cannot read: {}", path_, bytes_read_, std::strerror(errno)));
  }
}

void InputFile::refuse_bytes(std::uint64_t offset) const {
  throw FileError(fmt::format(
      "{}: offset {}: not UTF-8 (hint: convert the file, for instance with iconv)", path_, offset));
}

}  // namespace slackline
