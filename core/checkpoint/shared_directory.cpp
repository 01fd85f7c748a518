#include "core/checkpoint/shared_directory.h"

#include <random>
#include <unistd.h>

#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"

namespace slackline {

std::string write_probe(const std::string& directory) {
  // A new name each time: file systems of a network remember for a while which names are absent.
  std::random_device random;
  const std::uint64_t nonce = (std::uint64_t{random()} << 32U) | random();
  std::string probe = ".probe-" + hex_text(nonce);
  make_directories(directory);
  write_file_atomically(directory + "/" + probe, probe);
  return probe;
}

bool sees_probe(const std::string& directory, const std::string& probe) {
  try {
    return read_file(directory + "/" + probe) == probe;
  } catch (const FileError&) {
    return false;
  }
}

void remove_probe(const std::string& directory, const std::string& probe) {
  remove_tree(directory + "/" + probe);
}

void remove_unused(const std::string& directory) {
  ::rmdir(directory.c_str());  // fails where there is something in it, and nothing is lost then
}

}  // namespace slackline
