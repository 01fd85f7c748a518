#pragma once

#include <cstdlib>
#include <string>

namespace slackline {

// Sets a variable for the block. Null: absent.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    const char* before = std::getenv(name);
    had_ = before != nullptr;
    before_ = had_ ? before : "";
    set(value);
  }

  ~Environment() { set(had_ ? before_.c_str() : nullptr); }

  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) const {
    value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1);
  }

  const char* name_;
  bool had_ = false;
  std::string before_;
};

}  // namespace slackline
