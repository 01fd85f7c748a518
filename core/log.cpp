#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

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
  logger().info("{}", message);
}

void log_warning(std::string_view message) {
  logger().warn("{}", message);
}

void log_error(std::string_view message) {
  logger().error("{}", message);
}

}  // namespace slackline
