#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec_setting.h"
#include "core/json_reader.h"

namespace slackline {

enum class CompressionPolicy { none, all, list, optimus_cc, critical_path, replay };

// Classes of transfers that policy `list` names; what is absent means any.
struct ListedClasses {
  std::string site;
  std::optional<int> stage{};
  std::optional<std::string> phase{};   // "warmup", "steady", "cooldown", "step", "tail"
  std::optional<CodecSetting> codec{};  // absent: the site's
};

// What is measured of compressed messages, and what they may lose.
struct GuardConfig {
  std::int64_t every = 100;  // steps; 0: nothing is measured
  // Bounds by site: |message - decoded| / |message|, with error feedback |owed| / |message|.
  // Errors of sites that are not in it are reported only.
  std::map<std::string, double> max_error{};
};

// The default of compress.guard.max_error under policy critical_path, which chooses codecs by the
// seconds they win: what a message between stages loses is lost for the loss, what a gradient loses
// its feedback brings later (docs/results/quality.md has what the loss makes of them).
[[nodiscard]] const std::map<std::string, double>& critical_path_max_errors();

// The "compress" section. A site's setting holds under every policy, so it is read and checked
// under `none` too.
struct CompressConfig {
  CompressionPolicy policy = CompressionPolicy::none;
  std::map<std::string, CodecSetting> sites{};  // by name, as far as set
  // These are what critical_path may choose from, by site, as far as set.
  std::map<std::string, std::vector<CodecSetting>> candidates{};
  int warmup_steps = 0;                  // at first nothing is compressed
  std::vector<ListedClasses> classes{};  // of policy list
  bool epilogue_only = true;             // of optimus_cc
  std::optional<int> stages{};           // of optimus_cc: the first ones; absent: 3 of 4
  std::string plan{};                    // of replay: the path of a plan.json
  // Compresses rounds between workers that train apart; in force under every policy but none.
  std::optional<CodecSetting> outer{};
  GuardConfig guard{};

  // Returns how rounds are compressed; nothing: they are not.
  [[nodiscard]] std::optional<CodecSetting> codec_of_rounds() const {
    return policy == CompressionPolicy::none ? std::nullopt : outer;
  }
};

// Reads the codec of weights that passes gather: one that leaves nothing out, whose scales are of a
// row. Does not finish the section.
[[nodiscard]] CodecSetting read_gather_setting(JsonReader& section);

// Reads the codec of rounds, whose scales are of a row; what it leaves out is owed to the next
// round unless the section says otherwise. Does not finish the section.
[[nodiscard]] CodecSetting read_round_setting(JsonReader& section);

[[nodiscard]] CompressConfig read_compress_config(JsonReader section);

// Whether a setting that it names reads second moments.
[[nodiscard]] bool needs_moments(const CompressConfig& config);

}  // namespace slackline
