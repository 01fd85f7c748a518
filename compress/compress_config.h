#pragma once

#include <map>
#include <string>

#include "compress/codec_setting.h"
#include "core/json_reader.h"

namespace slackline {

enum class CompressionPolicy { none, all, list, optimus_cc, critical_path, replay };

// The "compress" section. A site's setting holds under every policy, so it is read and checked
// under `none` too; policies other than `none` are refused until codecs are built.
struct CompressConfig {
  CompressionPolicy policy = CompressionPolicy::none;
  std::map<std::string, CodecSetting> sites;
};

[[nodiscard]] CompressConfig read_compress_config(JsonReader section);

}  // namespace slackline
