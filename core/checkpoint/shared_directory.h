#pragma once

#include <string>

namespace slackline {

// Whether all ranks see the same directory. Nodes with disks of their own may each have one of that
// name, and shards written there would never meet. Rank 0 writes a probe, tells the others its
// name, each looks for it, and rank 0 removes it when all have answered.

// Creates the directory when it is absent and puts a file of a name that nobody used before into
// it. Returns the name.
[[nodiscard]] std::string write_probe(const std::string& directory);

// The probe is there and is the one that rank 0 wrote.
[[nodiscard]] bool sees_probe(const std::string& directory, const std::string& probe);

void remove_probe(const std::string& directory, const std::string& probe);

// Removes the directory if it is empty, as write_probe() made it.
void remove_unused(const std::string& directory);

}  // namespace slackline
