#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace slackline {

// Text as it may reach a terminal, a log or a report. What comes from a file, a config, a command
// line, the environment or another rank can hold escape sequences that clear a screen, direction
// marks that turn a name around, line breaks that make a line of its own, or no text at all.
//
// Control, format and separator characters (Unicode's Cc, Cf, Zl and Zp; so direction marks and
// zero-width characters) become \n, \t, \xNN or \uNNNN, bytes that are not UTF-8 become \xNN.
// Everything else stays, backslashes too, so that text that was escaped is not escaped again.
//
// Errors and logs do this themselves (core/error.h, core/log.h), and so does everything that is
// printed (core/terminal.h). tools/scripts/check_doors.py holds that there is no other way out.
[[nodiscard]] std::string shown_line(std::string_view text);

// The same for text of several lines: its line breaks and tabs stay.
[[nodiscard]] std::string shown_lines(std::string_view text);

// The same for a JSON document, as another document of the same values: \uNNNN, and U+FFFD for what
// is not UTF-8.
[[nodiscard]] std::string shown_json(std::string_view json);

[[nodiscard]] bool is_utf8(std::string_view text);

// A value inside a message: shown_line(), and cut where it is long. Not for paths, which are of use
// as a whole only and have a limit of their own.
inline constexpr std::size_t kLongestShownValue = 80;  // bytes
[[nodiscard]] std::string shown_value(std::string_view value,
                                      std::size_t longest = kLongestShownValue);

}  // namespace slackline
