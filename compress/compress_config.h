#pragma once

#include <map>
#include <string>

#include "core/json_reader.h"

namespace slackline {

enum class CompressionPolicy { none, all, list, optimus_cc, critical_path, replay };
enum class Codec { low_rank, top_k, random_k, quantize, cast };
enum class ErrorFeedback { none, immediate, lazy };

// How one site's transfers would be compressed.
struct CodecSetting {
  Codec codec = Codec::low_rank;
  int rank = 0;        // low_rank
  double ratio = 0.0;  // top_k, random_k: share of elements kept
  int bits = 0;        // quantize
  ErrorFeedback error_feedback = ErrorFeedback::none;
};

// The "compress" section. A site's setting holds under every policy, so it is read and checked
// under `none` too; policies other than `none` are refused until codecs are built.
struct CompressConfig {
  CompressionPolicy policy = CompressionPolicy::none;
  std::map<std::string, CodecSetting> sites;
};

[[nodiscard]] CompressConfig read_compress_config(JsonReader section);

}  // namespace slackline
