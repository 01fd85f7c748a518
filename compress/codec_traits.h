#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"

namespace slackline {

class JsonReader;

// A tensor of a message that is added up over ranks, in one round.
struct SumRound {
  std::size_t elements = 0;
  std::size_t element_bytes = 4;
};

// Floating-point operations for each element of a message, beside the passes over memory that every
// codec makes.
struct CodecWork {
  double encode = 0.0;
  double decode = 0.0;
};

// A kind of codec as those need it who size, price, choose, read and write its settings. Its file
// in compress/codecs ends with this constant; but for benches, which compare kinds, no other file
// asks which codec a setting names.
// Functions are pure; the settings that they are given are of this kind.
struct CodecTraits {
  const char* name = "";      // of the config's "codec"
  bool cuts_by_rows = false;  // a row's share of a message depends on setting and shapes alone
  bool trains = false;        // factors go on from message to message, and get better at it
  bool rounds = false;        // what it loses is nearly the same for every message of a shape; else
                              // it leaves things out, and leaves them out again

  // Bytes of a frame between its header and the matrices.
  std::size_t key_bytes = 0;

  // Gives what a matrix takes in a frame.
  std::size_t (*payload_bytes)(const CodecSetting& setting, const MatrixShape& shape) = nullptr;

  // The rounds in which messages are added up over ranks; null: they do not add.
  std::vector<SumRound> (*sum_rounds)(const CodecSetting& setting,
                                      const std::vector<CodecPart>& parts) = nullptr;

  // Null: next to none.
  CodecWork (*work)(const CodecSetting& setting) = nullptr;

  // |x - y| / |x| without error feedback, as expected_error() (compress/expected_error.h) gives it.
  double (*expected_error)(const CodecSetting& setting, const MatrixShape& shape) = nullptr;

  // The setting that loses less by a step; null, or nothing: there is none.
  std::optional<CodecSetting> (*finer)(const CodecSetting& setting) = nullptr;

  // Its own keys of a config or plan, with defaults of the site where they depend on it, and the
  // same written, each after a comma; null: it has none. What it does not read stays as it is.
  void (*read)(JsonReader& section, const CodecSetting& defaults, CodecSetting& setting) = nullptr;
  std::string (*keys)(const CodecSetting& setting) = nullptr;

  // Whether it reads second moments of what it codes; null: never.
  bool (*needs_moments)(const CodecSetting& setting) = nullptr;

  // The number that people know a setting by: "16" of low_rank 16; null: none.
  std::string (*strength)(const CodecSetting& setting) = nullptr;

  std::unique_ptr<Codec> (*make)(const CodecSetting& setting,
                                 std::vector<CodecPart> parts,
                                 std::uint64_t seed,
                                 Device device) = nullptr;
};

// Makes a codec of the class `Kind`: what `make` is of its traits.
template <typename Kind>
[[nodiscard]] std::unique_ptr<Codec> make_codec_of(const CodecSetting& setting,
                                                   std::vector<CodecPart> parts,
                                                   std::uint64_t seed,
                                                   Device device) {
  return std::make_unique<Kind>(setting, std::move(parts), seed, device);
}

[[nodiscard]] const CodecTraits& traits_of(CodecKind kind);

[[nodiscard]] bool needs_moments(const CodecSetting& setting);

// Whether sums of its messages can be made as SumWay::two_shot has it: a part of the rows is a
// message of its own, which is decoded and coded like the whole.
[[nodiscard]] bool is_summed_in_two_shots(const CodecSetting& setting);

}  // namespace slackline
