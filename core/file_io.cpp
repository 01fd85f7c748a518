#include "core/file_io.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"

namespace slackline {

namespace {

constexpr std::size_t kPendingBytes = std::size_t{256} << 10U;
constexpr mode_t kFileMode = 0644;

std::filesystem::file_status status_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error && status.type() != std::filesystem::file_type::not_found) {
    fail_at(path, "look up", error.value());
  }
  return status;
}

// Whether a path is one of the names of an open file.
bool is_name_of(const std::string& path, const OpenFile& file) {
  struct stat of_path = {};
  struct stat of_file = {};
  return ::stat(path.c_str(), &of_path) == 0 && ::fstat(file.get(), &of_file) == 0 &&
         of_path.st_dev == of_file.st_dev && of_path.st_ino == of_file.st_ino;
}

// Returns an empty file that this process alone writes, if the file system has locks. What an
// earlier process has left there is lost.
OpenFile open_partial(const std::string& path) {
  while (true) {
    OpenFile file(path, O_WRONLY | O_CREAT, "create");
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      throw FileError(path +
                      ": another process is writing it; wait for that one, or write elsewhere");
    }
    if (!is_name_of(path, file)) {
      continue;  // who wrote it has just put it in place, or removed it
    }
    if (is_regular_file(path) && ::ftruncate(file.get(), 0) != 0) {
      fail_at(path, "create", errno);
    }
    return file;
  }
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

void fail_at(const std::string& path, std::string_view action, int error) {
  throw FileError(
      fmt::format("{}: cannot {}: {}", path, action, std::generic_category().message(error)));
}

OpenFile::OpenFile(const std::string& path, int flags, std::string_view action)
    : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, kFileMode)) {
  if (descriptor_ < 0) {
    fail_at(path, action, errno);
  }
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void OpenFile::write(const std::string& path, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      fail_at(path, "write", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

void OpenFile::sync(const std::string& path) const {
  // Delayed allocation and network file systems may report a full disk only here.
  if (::fsync(descriptor_) != 0) {
    fail_at(path, "write to disk", errno);
  }
}

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // A pipe without a writer would block here.
  const OpenFile file(path_, O_RDONLY | O_NONBLOCK, "open");

  struct stat status {};

  if (::fstat(file.get(), &status) != 0) {
    fail_at(path_, "read its size", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw FileError(path_ + ": cannot map: not a regular file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) {
    return;  // the system refuses to map nothing
  }
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) {
    fail_at(path_, "map", errno);
  }
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FileWriter::FileWriter(std::string path)
    : path_(std::move(path)),
      partial_path_(path_ + ".partial"),
      file_(open_partial(partial_path_)) {
  pending_.reserve(kPendingBytes);
}

FileWriter::~FileWriter() {
  if (file_.get() >= 0) {
    ::unlink(partial_path_.c_str());  // while nobody else may have it
  }
}

void FileWriter::write(std::span<const std::byte> bytes) {
  SL_CHECK(file_.get() >= 0, path_ + " is committed");
  if (pending_.size() + bytes.size() > kPendingBytes) {
    flush();
  }
  if (bytes.size() >= kPendingBytes) {
    file_.write(path_, bytes);
  } else {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
  bytes_written_ += bytes.size();
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void FileWriter::flush() {
  file_.write(path_, pending_);
  pending_.clear();
}

void FileWriter::sync() {
  SL_CHECK(file_.get() >= 0, path_ + " is committed");
  flush();
  file_.sync(path_);
}

void FileWriter::commit() {
  sync();
  if (::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    fail_at(path_, "put in place", errno);
  }
  if (::close(file_.release()) != 0) {
    fail_at(path_, "close", errno);
  }
  sync_directory(parent_of(path_));
}

LineFile::LineFile(std::string path)
    : path_(std::move(path)), file_(path_, O_RDWR | O_CREAT | O_APPEND, "open") {}

bool LineFile::is_in_place() const {
  return is_name_of(path_, file_);
}

void LineFile::append(std::string_view line) {
  SL_CHECK(line.find('\n') == std::string_view::npos, "a newline inside a line of " + path_);
  std::string text(line);
  text += '\n';
  file_.write(path_, std::as_bytes(std::span(text)));
}

void LineFile::truncate_before(const std::function<bool(std::string_view)>& drop) {
  const std::string content = read_file(path_);
  std::size_t kept = 0;
  for (std::size_t end = content.find('\n'); end != std::string::npos;
       end = content.find('\n', kept)) {
    if (drop(std::string_view(content).substr(kept, end - kept))) {
      break;
    }
    kept = end + 1;
  }
  if (::ftruncate(file_.get(), static_cast<off_t>(kept)) != 0) {
    fail_at(path_, "truncate", errno);
  }
}

std::string read_file(const std::string& path, std::size_t most) {
  constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
  std::string content = read_start(path, most == kNoLimit ? most : most + 1);
  if (content.size() > most) {
    throw FileError(fmt::format("{}: is larger than {} bytes", path, most));
  }
  return content;
}

std::string read_start(const std::string& path, std::size_t count) {
  const OpenFile file(path, O_RDONLY, "open");
  std::string content;
  constexpr std::size_t kChunk = std::size_t{64} << 10U;
  std::size_t used = 0;
  while (used < count) {
    const std::size_t next = std::min(kChunk, count - used);
    content.resize(used + next);
    const ssize_t got = ::read(file.get(), content.data() + used, next);
    if (got < 0 && errno != EINTR) {
      fail_at(path, "read", errno);
    }
    used += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    if (got == 0) {
      break;
    }
  }
  content.resize(used);
  return content;
}

void write_file_atomically(const std::string& path, std::string_view content) {
  FileWriter writer(path);
  writer.write(content);
  writer.commit();
}

bool path_exists(const std::string& path) {
  return std::filesystem::exists(status_of(path));
}

bool is_regular_file(const std::string& path) {
  return std::filesystem::is_regular_file(status_of(path));
}

bool is_directory(const std::string& path) {
  return std::filesystem::is_directory(status_of(path));
}

std::size_t file_bytes(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) {
    fail_at(path, "look up the size", error.value());
  }
  return bytes;
}

std::vector<std::string> subdirectories(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_directory(entry->path().string())) {
      names.push_back(entry->path().filename().string());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail_at(path, "list directory", error.value());
  }
  return names;
}

std::string link_target(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  if (error) {
    fail_at(path, "read link", error.value());
  }
  return target.string();
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    fail_at(path, "create directory", error.value());
  }
}

void sync_directory(const std::string& path) {
  const OpenFile directory(path, O_RDONLY | O_DIRECTORY, "open directory");
  const bool is_synced = ::fsync(directory.get()) == 0;
  // Some file systems sync no directories.
  if (!is_synced && errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    fail_at(path, "write directory to disk", errno);
  }
}

void rename_and_sync(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_at(from, "rename to " + to, errno);
  }
  sync_directory(parent_of(to));
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code none;
  return std::filesystem::equivalent(a, b, none);
}

bool exchange_and_sync(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) {
      return false;
    }
    fail_at(a, "change places with " + b, errno);
  }
  sync_directory(parent_of(b));
  return true;
}

void remove_tree(const std::string& path) {
  const std::filesystem::path name = std::filesystem::path(path).lexically_normal().filename();
  SL_CHECK(!name.empty() && name != "." && name != "..", "refuses to remove '" + path + "'");
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) {
    fail_at(path, "remove", error.value());
  }
}

}  // namespace slackline
