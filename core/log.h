#pragma once

#include <string_view>

#include "core/error.h"

namespace slackline {

// Messages for a person, on standard error, through spdlog, as shown_line() makes them
// (core/shown_text.h); a Lines keeps its line breaks. Safe from any thread.
void log_info(std::string_view message);
void log_info(const Lines& message);
void log_warning(std::string_view message);
void log_error(std::string_view message);
void log_error(const Lines& message);

}  // namespace slackline
