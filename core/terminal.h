#pragma once

#include <string_view>

namespace slackline {

// Prints everything but logs (core/log.h). Nothing here can do more to a terminal than show text
// and write over a line of our own. Output is flushed before a call returns; where standard output
// cannot be written, calls that print a command's result throw FileError. One thread at a time.

enum class Output { standard, error };

// Lines that are ours, with their line breaks, on standard output; everything else in them that
// shown_lines() escapes is escaped. A value from outside that may hold a line break stands in it as
// shown_line() or shown_value() make it.
void print_lines(std::string_view text);

// The same for what goes on without a reader: lines that cannot be written are lost.
void print_progress(std::string_view text);

// JSON, on standard output: what does not belong on a terminal is escaped as JSON does, so that it
// reads back as the same values.
void print_json(std::string_view json);

// Text of a model, on standard output: as it is, or as shown_lines() makes it on a terminal.
void print_generated(std::string_view text);

// Writes over the line that the cursor is in, and stays in it. REQUIRES: a terminal.
void redraw_line(Output output, std::string_view text);
void erase_line(Output output);

}  // namespace slackline
