#include "core/terminal.h"

#include <cstdio>
#include <string>
#include <unistd.h>

#include "core/shown_text.h"

namespace slackline {

namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

void write(Output output, std::string_view text) {
  std::FILE* file = output == Output::standard ? stdout : stderr;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace

void print_lines(std::string_view text) {
  write(Output::standard, shown_lines(text));
}

void print_json(std::string_view json) {
  write(Output::standard, shown_json(json));
}

void print_generated(std::string_view text) {
  write(Output::standard, isatty(STDOUT_FILENO) == 1 ? shown_lines(text) : std::string(text));
}

void redraw_line(Output output, std::string_view text) {
  write(output, std::string(kEraseLine) + shown_line(text));
}

void erase_line(Output output) {
  write(output, kEraseLine);
}

}  // namespace slackline
