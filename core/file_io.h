#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slackline {

// Files and directories. Every failure is a FileError "PATH: cannot DO: reason of the system".

// Throws a FileError whose reason is that of an errno.
[[noreturn]] void fail_at(const std::string& path, std::string_view action, int error);

// A descriptor, closed at its owner's end, where a failure to close tells nothing. Move-only.
// Failures name the `path` that a call is given.
class OpenFile {
 public:
  // `flags` are those of open(), to which comes O_CLOEXEC; what they create is for all to read.
  OpenFile(const std::string& path, int flags, std::string_view action);
  ~OpenFile();

  OpenFile(OpenFile&& other) noexcept : descriptor_(other.release()) {}

  OpenFile& operator=(OpenFile&& other) noexcept;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] int get() const { return descriptor_; }

  // Leaves it to the caller to close; get() is negative then.
  [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }

  // Writes all the bytes.
  void write(const std::string& path, std::span<const std::byte> bytes) const;
  // Brings what was written to the disk.
  void sync(const std::string& path) const;

 private:
  int descriptor_ = -1;
};

// A whole file mapped for reading. Move-only; spans into it live as long as it does. The file must
// not shrink meanwhile: touching what is gone kills the process (files here are replaced by
// rename, never rewritten in place).
class MappedFile {
 public:
  MappedFile() = default;
  // An empty file maps to an empty span; anything but a regular file is refused.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Writes a file as a stream that appears under its name only when complete: bytes go to
// PATH.partial beside it; commit() syncs, renames and syncs the directory, so that after a crash
// there is the old file or the new one. Without commit() the destructor removes the partial file.
// One writer per path at a time: where the file system has locks, a second one throws FileError and
// leaves the first one's file as it is.
class FileWriter {
 public:
  explicit FileWriter(std::string path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Brings what was written to the disk, so that commit() has only the names left to fail at.
  void sync();
  void commit();

  [[nodiscard]] std::size_t bytes_written() const { return bytes_written_; }

 private:
  void flush();

  std::string path_;
  std::string partial_path_;
  OpenFile file_;
  std::size_t bytes_written_ = 0;
  std::vector<std::byte> pending_;  // small writes are collected
};

// A text file that grows by whole lines, each handed to the system before append() returns: what
// a crash of the process leaves is readable. Creates the file when it is not there. Move-only.
class LineFile {
 public:
  explicit LineFile(std::string path);

  // REQUIRES: `line` holds no newline.
  void append(std::string_view line);

  // Whether its path still names this file.
  [[nodiscard]] bool is_in_place() const;

  // Cuts the file before the first line for which `drop` is true. A last line that a crash left
  // without its newline goes in any case.
  void truncate_before(const std::function<bool(std::string_view)>& drop);

 private:
  std::string path_;
  OpenFile file_;
};

// Throws FileError, also for a file of more than `most` bytes.
[[nodiscard]] std::string read_file(const std::string& path,
                                    std::size_t most = std::numeric_limits<std::size_t>::max());

// Returns the first bytes of a file, `count` at most.
[[nodiscard]] std::string read_start(const std::string& path, std::size_t count);

// FileWriter for content that is there at once.
void write_file_atomically(const std::string& path, std::string_view content);

// Something has this name, whatever it is; a regular file has it; a directory has it. False where
// nothing has; what cannot be looked up for another reason is a failure.
[[nodiscard]] bool path_exists(const std::string& path);
[[nodiscard]] bool is_regular_file(const std::string& path);
[[nodiscard]] bool is_directory(const std::string& path);

// The size of a regular file.
[[nodiscard]] std::size_t file_bytes(const std::string& path);

// Whether both paths lead to one file; false where one leads to none.
[[nodiscard]] bool is_same_file(const std::string& a, const std::string& b);

// The names of the directories in a directory, in no order; none where there is no such directory.
[[nodiscard]] std::vector<std::string> subdirectories(const std::string& path);

// Returns what a symbolic link points to.
[[nodiscard]] std::string link_target(const std::string& path);

// Creates the directory and its parents; one that exists is fine.
void make_directories(const std::string& path);

// Makes renames and new names in a directory survive a crash of the machine.
void sync_directory(const std::string& path);

// Renames within one file system and syncs the directory of the new name.
void rename_and_sync(const std::string& from, const std::string& to);

// Lets two names of one file system change places at once, and syncs the directory of the second.
// Returns false, nothing done, where the file system cannot.
[[nodiscard]] bool exchange_and_sync(const std::string& a, const std::string& b);

// Removes a file, or a directory with all in it; links are removed, not followed. An absent path is
// fine. REQUIRES: the path names something below a directory (not "", "/", "." or "..").
void remove_tree(const std::string& path);

}  // namespace slackline
