#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/comm/transport/transport.h"

namespace slackline {

// Ranks are threads of one process and share one engine: a send and its receive meet in a table,
// and whichever comes second copies the bytes.
class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(MessageListener& listener) : listener_(listener) {}

  void open_group(std::uint32_t /*id*/, const std::vector<int>& /*members*/) override {}

  void post(const Message& message) override;

  bool progress() override { return false; }

  [[nodiscard]] bool needs_polling() const override { return false; }

  void announce_failure(const std::string& /*reason*/) override {}

  void close() override {}

  void abort(int /*code*/) override {}

 private:
  struct Key {
    std::uint64_t ranks = 0;  // sender and receiver
    std::uint64_t place = 0;  // communicator, sequence and lane
    bool operator==(const Key&) const = default;
  };

  struct Hash {
    std::size_t operator()(const Key& key) const {
      return (key.ranks * 0x9e3779b97f4a7c15ULL) ^ (key.place * 0xc2b2ae3d27d4eb4fULL);
    }
  };

  static Key key_of(const Message& message);

  MessageListener& listener_;
  std::unordered_map<Key, std::deque<Message>, Hash> unmatched_;  // of one way each
};

}  // namespace slackline
