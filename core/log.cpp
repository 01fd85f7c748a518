#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "core/shown_text.h"

namespace slackline {

namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("slackline");
    made->set_pattern("%H:%M:%S %^%l%$ %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void log_info(std::string_view message) {
  logger().info("{}", shown_line(message));
}

void log_info(const Lines& message) {
  logger().info("{}", shown_lines(message.text));
}

void log_warning(std::string_view message) {
  logger().warn("{}", shown_line(message));
}

void log_error(std::string_view message) {
  logger().error("{}", shown_line(message));
}

void log_error(const Lines& message) {
  logger().error("{}", shown_lines(message.text));
}

}  // namespace slackline
