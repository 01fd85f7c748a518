#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compress/codec.h"

// What makes each kind of codec; make_codec() chooses among them.
namespace slackline {

[[nodiscard]] std::unique_ptr<Codec> make_low_rank_codec(const CodecSetting& setting,
                                                         std::vector<CodecPart> parts,
                                                         std::uint64_t seed,
                                                         Device device);
[[nodiscard]] std::unique_ptr<Codec> make_top_k_codec(const CodecSetting& setting,
                                                      std::vector<CodecPart> parts);
[[nodiscard]] std::unique_ptr<Codec> make_random_k_codec(const CodecSetting& setting,
                                                         std::vector<CodecPart> parts,
                                                         std::uint64_t seed,
                                                         Device device);
[[nodiscard]] std::unique_ptr<Codec> make_quantize_codec(const CodecSetting& setting,
                                                         std::vector<CodecPart> parts);
[[nodiscard]] std::unique_ptr<Codec> make_cast_codec(std::vector<CodecPart> parts, Device device);

}  // namespace slackline
