#pragma once

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace slackline::schedule::testing {

// The text of a file of the source tree.
inline std::string source_text(const std::string& path) {
  std::ifstream file(std::string(SL_SOURCE_DIR) + "/" + path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read " + path);
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string golden_text(const std::string& name) {
  return source_text("tests/golden/schedule/" + name);
}

}  // namespace slackline::schedule::testing
