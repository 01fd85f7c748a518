#pragma once

#include <string>

namespace slackline {

// Short texts by which ranks find out whether they have the same file. Neither throws: a file that
// is absent or cannot be read gives a text that says so.

// Device, inode, size and time of the last change: equal for processes of one host that see the
// same file. The file is not read.
[[nodiscard]] std::string file_identity(const std::string& path);

// Size and a hash of the contents: equal for copies of a file on any hosts. In a file of more
// than 64 pages of 4096 bytes the hash takes 64, evenly spread, the first and the last among them.
[[nodiscard]] std::string sampled_contents(const std::string& path);

// The same of every byte.
[[nodiscard]] std::string whole_contents(const std::string& path);

}  // namespace slackline
