#pragma once

#include <string>

namespace slackline {

enum class Validation { none, files };

// Makes a checkpoint what Slackline wrote before it kept settings: with validation files it wrote
// down the split that was not used, and that there are such files.
void make_older(const std::string& checkpoint, Validation validation = Validation::none);

}  // namespace slackline
