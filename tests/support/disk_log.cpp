// A library to put before a program's own (LD_PRELOAD): it appends to the file $DISK_LOG a line for
// every file that is written to the disk and every one that gets a new name, in their order:
//   sync BYTES PATH      BYTES: how long the file was
//   rename FROM > TO
// and does what was asked.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace {

void append(const std::string& line) {
  const char* path = std::getenv("DISK_LOG");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const int file = path == nullptr ? -1 : ::open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file < 0 || ::write(file, line.data(), line.size()) < 0) {
    std::abort();
  }
  ::close(file);
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int file) {
  std::array<char, 4096> path{};

  struct stat status {};

  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (::readlink(link.c_str(), path.data(), path.size() - 1) > 0 && ::fstat(file, &status) == 0) {
    append("sync " + std::to_string(status.st_size) + " " + path.data() + "\n");
  }
  return next<int(int)>("fsync")(file);
}

int rename(const char* from, const char* to) {
  append(std::string("rename ") + from + " > " + to + "\n");
  return next<int(const char*, const char*)>("rename")(from, to);
}
}
