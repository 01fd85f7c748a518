#include "core/check.h"

namespace slackline::internal {

void check_failed(const char* expression, const std::string& detail, const char* file, int line) {
  std::ostringstream message;
  message << file << ':' << line << ": check failed: " << expression;
  if (!detail.empty()) {
    message << " (" << detail << ')';
  }
  throw Error(message.str());
}

}  // namespace slackline::internal
