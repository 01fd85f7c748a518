#include "core/tensor/memory_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace slackline {

namespace {

struct Table {
  std::mutex mutex;
  std::array<std::map<std::string, HeldBytes>, 2> spaces;

  std::map<std::string, HeldBytes>& of(MemorySpace space) {
    return spaces.at(static_cast<std::size_t>(space));
  }
};

// Never destroyed: buffers of static objects may end later.
Table& table() {
  static auto* const only = new Table;  // NOLINT(cppcoreguidelines-owning-memory)
  return *only;
}

std::size_t total(const std::map<std::string, HeldBytes>& held) {
  std::size_t bytes = 0;
  for (const auto& [name, entry] : held) {
    bytes += entry.bytes;
  }
  return bytes;
}

std::string line(const std::string& name, const HeldBytes& held) {
  const std::string buffers = held.buffers == 1 ? "" : fmt::format(" in {} buffers", held.buffers);
  return fmt::format("\n  {:>10}  {}{}", size_text(held.bytes), name, buffers);
}

}  // namespace

void note_taken(MemorySpace space, const std::string& name, std::size_t bytes) {
  const std::scoped_lock lock(table().mutex);
  HeldBytes& held = table().of(space)[name];
  held.bytes += bytes;
  ++held.buffers;
}

void note_released(MemorySpace space, const std::string& name, std::size_t bytes) {
  const std::scoped_lock lock(table().mutex);
  const auto found = table().of(space).find(name);
  if (found != table().of(space).end()) {
    found->second.bytes -= bytes;
    if (--found->second.buffers == 0) {
      table().of(space).erase(found);
    }
  }
}

std::size_t held_bytes(MemorySpace space) {
  const std::scoped_lock lock(table().mutex);
  return total(table().of(space));
}

std::string memory_table(MemorySpace space) {
  const std::scoped_lock lock(table().mutex);
  return memory_table(table().of(space));
}

std::string memory_table(const std::map<std::string, HeldBytes>& held) {
  constexpr std::size_t kMostLines = 12;
  std::vector<std::pair<std::string, HeldBytes>> lines(held.begin(), held.end());
  std::ranges::sort(lines, [](const auto& a, const auto& b) {
    return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
  });
  std::string text;
  HeldBytes rest;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i < kMostLines) {
      text += line(lines[i].first, lines[i].second);
    } else {
      rest.bytes += lines[i].second.bytes;
      rest.buffers += lines[i].second.buffers;
    }
  }
  if (rest.buffers > 0) {
    text += line("others", rest);
  }
  return text + line("all", {.bytes = total(held), .buffers = 1});
}

std::string size_text(std::size_t bytes) {
  constexpr double kUnit = 1024.0;
  const auto size = static_cast<double>(bytes);
  if (size >= kUnit * kUnit * kUnit) {
    return fmt::format("{:.2f} GiB", size / (kUnit * kUnit * kUnit));
  }
  if (size >= kUnit * kUnit) {
    return fmt::format("{:.1f} MiB", size / (kUnit * kUnit));
  }
  return fmt::format("{} bytes", bytes);
}

}  // namespace slackline
