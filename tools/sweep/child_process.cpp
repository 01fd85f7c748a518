#include "tools/sweep/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/shown_text.h"

namespace slackline {

namespace {

constexpr int kCannotStart = 127;  // as shells say it

// Signals that ask a process to end. They wait while a child still has its parent's handlers, which
// would note them and do nothing.
sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

}  // namespace

ChildProcess::ChildProcess(ChildCommand command) : command_(std::move(command)) {
  std::signal(SIGCHLD, SIG_DFL);  // ignored, as a parent may hand it on, children leave no status
  const pid_t parent = ::getpid();
  const sigset_t signals = stop_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  id_ = ::fork();
  const int error = errno;
  if (id_ == 0) {
    become(parent, before);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (id_ < 0) {
    throw FileError(
        fmt::format("{}: cannot start a process: {}", command_.words[0], std::strerror(error)));
  }
}

// Runs in the child. posix_spawn() has no word for the signal on the parent's death.
void ChildProcess::become(pid_t parent, const sigset_t& mask) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, command_.stop_signal);
  if (::getppid() != parent) {
    ::_exit(kCannotStart);  // it died before it could be watched
  }
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(command_.out, STDOUT_FILENO);
  ::dup2(command_.error, STDERR_FILENO);
  std::vector<char*> words;
  words.reserve(command_.words.size() + 1);
  for (std::string& word : command_.words) {
    words.push_back(word.data());
  }
  words.push_back(nullptr);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGPIPE}) {
    std::signal(signal, SIG_DFL);
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(words[0], words.data());
  const std::string message = fmt::format(
      "{}: cannot be started: {}\n", shown_line(command_.words[0]), std::strerror(errno));
  static_cast<void>(!::write(STDERR_FILENO, message.data(), message.size()));
  ::_exit(kCannotStart);
}

ChildProcess::~ChildProcess() {
  if (!exit_code_) {
    ask_to_end();
    ::waitpid(id_, nullptr, 0);
  }
}

void ChildProcess::ask_to_end() const {
  ::kill(id_, command_.stop_signal);
}

std::optional<int> ChildProcess::exit_code() {
  int status = 0;
  if (!exit_code_ && ::waitpid(id_, &status, WNOHANG) == id_) {
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : kEndedBySignal + WTERMSIG(status);
  }
  return exit_code_;
}

bool program_exists(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    return ::access(program.c_str(), X_OK) == 0;
  }
  const char* path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (::access(fmt::format("{}/{}", directory, program).c_str(), X_OK) == 0) {
      return !program.empty();
    }
  }
  return false;
}

}  // namespace slackline
