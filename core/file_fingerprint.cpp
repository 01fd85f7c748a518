#include "core/file_fingerprint.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <sys/stat.h>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"

namespace slackline {

namespace {

constexpr std::size_t kPage = 4096;  // bytes
constexpr std::size_t kNumPages = 64;

std::uint64_t hash_of_pages(std::span<const std::byte> bytes) {
  if (bytes.size() <= kNumPages * kPage) {
    return xxh3(bytes);
  }
  Xxh3 hash;
  const std::size_t last = bytes.size() - kPage;
  for (std::size_t i = 0; i < kNumPages; ++i) {
    // The product would not overflow below 2^58 bytes.
    hash.update(bytes.subspan(last * i / (kNumPages - 1), kPage));
  }
  return hash.digest();
}

std::string contents(const std::string& path,
                     std::uint64_t (*hash_of)(std::span<const std::byte>)) {
  struct stat found {};

  if (::stat(path.c_str(), &found) != 0 && errno == ENOENT) {
    return "no such file";
  }
  try {
    const MappedFile file(path);
    return fmt::format(
        "{} bytes with hash {}", file.bytes().size(), hex_text(hash_of(file.bytes())));
  } catch (const FileError& error) {
    return error.what();
  }
}

}  // namespace

std::string file_identity(const std::string& path) {
  struct stat found {};

  if (::stat(path.c_str(), &found) != 0) {
    return std::strerror(errno);
  }
  return fmt::format("{}:{}:{}:{}.{:09}",
                     found.st_dev,
                     found.st_ino,
                     found.st_size,
                     found.st_mtim.tv_sec,
                     found.st_mtim.tv_nsec);
}

std::string sampled_contents(const std::string& path) {
  return contents(path, hash_of_pages);
}

std::string whole_contents(const std::string& path) {
  return contents(path, xxh3);
}

}  // namespace slackline
