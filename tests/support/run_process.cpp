#include "tests/support/run_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "tests/support/places.h"

namespace slackline {

std::string RunningProcess::content(std::FILE* file) {
  std::rewind(file);
  std::string text;
  std::array<char, 4096> block{};
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), file)) {
    text.append(block.data(), count);
  }
  return text;
}

RunningProcess::RunningProcess(const std::string& program,
                               const std::vector<std::string>& arguments)
    : out_(std::tmpfile()), error_(std::tmpfile()) {
  if (out_ == nullptr || error_ == nullptr) {
    throw Error("cannot make a temporary file");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, fileno(out_.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(error_.get()), STDERR_FILENO);

  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const int failure = posix_spawn(&id_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    id_ = 0;
    throw Error("cannot start " + program);
  }
}

RunningProcess::~RunningProcess() {
  if (id_ != 0) {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
}

ProcessResult RunningProcess::wait() {
  int status = 0;
  rusage usage{};
  while (wait4(id_, &status, 0, &usage) < 0) {
    if (errno != EINTR) {
      throw Error("lost track of a process");
    }
  }
  id_ = 0;
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = content(out_.get()),
          .error = content(error_.get()),
          .peak_bytes = static_cast<std::size_t>(usage.ru_maxrss) * 1024};
}

ProcessResult run_process(const std::string& program, const std::vector<std::string>& arguments) {
  return RunningProcess(program, arguments).wait();
}

ProcessResult run_slackline(const std::vector<std::string>& arguments) {
  return run_process(test_place("SLACKLINE_BINARY", SL_BINARY), arguments);
}

}  // namespace slackline
