#include "core/error.h"

#include "core/shown_text.h"

namespace slackline {

Lines with_hint(const std::string& message, const std::string& hint) {
  return {shown_line(message) + "\nhint: " + shown_line(hint)};
}

Error::Error(const std::string& message, ExitCode code)
    : std::runtime_error(shown_line(message)), code_(code) {}

Error::Error(const Lines& message, ExitCode code)
    : std::runtime_error(shown_lines(message.text)), code_(code) {}

}  // namespace slackline
