#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace slackline {

// What this process holds in buffers, by name: of one space, the host's memory or a device's. Ranks
// that are threads share a table. Safe from any thread.
enum class MemorySpace { host, device };

void note_taken(MemorySpace space, const std::string& name, std::size_t bytes);
void note_released(MemorySpace space, const std::string& name, std::size_t bytes);

[[nodiscard]] std::size_t held_bytes(MemorySpace space);

// A line for each name, the largest first, and one for all of them.
[[nodiscard]] std::string memory_table(MemorySpace space);

// The same for what is only to be held.
struct HeldBytes {
  std::size_t bytes = 0;
  std::size_t buffers = 0;
};

[[nodiscard]] std::string memory_table(const std::map<std::string, HeldBytes>& held);

// "1.50 GiB", "12.0 MiB", "300 bytes".
[[nodiscard]] std::string size_text(std::size_t bytes);

}  // namespace slackline
