#include "tests/support/run_process.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"

namespace slackline {

namespace {

struct Close {
  void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
};

// Output goes to files without a name: no pipe fills up, however much a program prints.
using TemporaryFile = std::unique_ptr<std::FILE, Close>;

std::string content(std::FILE* file) {
  std::rewind(file);
  std::string text;
  std::array<char, 4096> block{};
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), file)) {
    text.append(block.data(), count);
  }
  return text;
}

}  // namespace

ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments) {
  const TemporaryFile out(std::tmpfile());
  const TemporaryFile error(std::tmpfile());
  if (out == nullptr || error == nullptr) {
    throw Error("cannot make a temporary file");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(error.get()), STDERR_FILENO);

  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_t process = 0;
  const int failure =
      posix_spawn(&process, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw Error("cannot start " + program);
  }
  int status = 0;
  rusage usage{};
  while (wait4(process, &status, 0, &usage) < 0) {
    if (errno != EINTR) {
      throw Error("lost track of " + program);
    }
  }
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = content(out.get()),
          .error = content(error.get()),
          .peak_bytes = static_cast<std::size_t>(usage.ru_maxrss) * 1024};
}

ProcessResult run_slackline(const std::vector<std::string>& arguments) {
  return run_process(SL_BINARY, arguments);
}

}  // namespace slackline
