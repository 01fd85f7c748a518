#include "core/terminal.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <unistd.h>

#include "core/error.h"
#include "core/shown_text.h"

namespace slackline {

namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

// Returns whether all of it was written.
bool write(Output output, std::string_view text) {
  std::FILE* file = output == Output::standard ? stdout : stderr;
  const bool is_whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fflush(file) == 0 && is_whole;
}

void write_result(std::string_view text) {
  if (!write(Output::standard, text)) {
    throw FileError(std::string("standard output: cannot be written: ") + std::strerror(errno));
  }
}

}  // namespace

void print_lines(std::string_view text) {
  write_result(shown_lines(text));
}

void print_progress(std::string_view text) {
  static_cast<void>(write(Output::standard, shown_lines(text)));
}

void print_json(std::string_view json) {
  write_result(shown_json(json));
}

void print_generated(std::string_view text) {
  write_result(isatty(STDOUT_FILENO) == 1 ? shown_lines(text) : std::string(text));
}

void redraw_line(Output output, std::string_view text) {
  static_cast<void>(write(output, std::string(kEraseLine) + shown_line(text)));
}

void erase_line(Output output) {
  static_cast<void>(write(output, kEraseLine));
}

}  // namespace slackline
