#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compress/codec_times.h"
#include "core/comm/communicator.h"
#include "parallel/plan/step_costs.h"

namespace slackline {

// Adds up on each rank what codecs take of messages, for the costs of a run. Every rank has one and
// calls alike.
class MeasuredCodecs {
 public:
  void add_in_step(const std::vector<CodecTimes>& codecs) { add(codecs, in_steps_); }

  // Adds calls outside of steps, which count for settings that no step has used.
  void add_beside_steps(const std::vector<CodecTimes>& codecs) { add(codecs, beside_steps_); }

  // Returns, on every rank, the costs on the rank that took longest. Blocks.
  [[nodiscard]] std::vector<CodecCost> costs(Communicator& world) const;

 private:
  // Names a codec's messages of one shape: setting as JSON, shape and bytes, as they stand in a
  // cost file.
  struct Key {
    std::string codec{};
    std::vector<std::int64_t> shape{};
    std::size_t sent_bytes = 0;

    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  struct Sums {
    CallTimes encode{};
    CallTimes decode{};
  };

  // Seconds of a call.
  struct Means {
    double encode = 0.0;
    double decode = 0.0;
  };

  static void add(const std::vector<CodecTimes>& codecs, std::map<Key, Sums>& table);
  // Merges the tables of all ranks into one with the longest of their means. Blocks.
  [[nodiscard]] static std::map<Key, Means> slowest(const std::map<Key, Sums>& own,
                                                    Communicator& world);

  std::map<Key, Sums> in_steps_{};
  std::map<Key, Sums> beside_steps_{};
};

}  // namespace slackline
