#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

namespace slackline {

// A file of text read from front to back. Throws FileError where it cannot be opened or read, or
// is a directory.
class InputFile {
 public:
  explicit InputFile(std::string path);

  // Appends up to `bytes` bytes to `buffer`; false at the end of the file.
  bool append_to(std::string& buffer, std::size_t bytes);
  // Reads up to the next line feed, which is not kept; false at the end of the file.
  bool read_line(std::string& line);

  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // size; 0 for pipes

  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

  // Throws FileError: "<path>: offset <offset>: not UTF-8 ...".
  [[noreturn]] void refuse_bytes(std::uint64_t offset) const;

 private:
  void check_state() const;

  std::string path_;
  std::ifstream stream_;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace slackline
