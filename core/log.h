#pragma once

#include <string_view>

namespace slackline {

// Messages for a person, on standard error, through spdlog. Safe from any thread.
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace slackline
