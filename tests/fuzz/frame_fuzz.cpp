#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "compress/codec_setting_json.h"
#include "core/error.h"

// Arbitrary bytes as frames: a codec that decodes one either throws CommError and leaves its output
// alone, or writes all of it; the frame that it made itself it takes. Anything else, a read outside
// the frame included, ends the program.
//
// An input is
//   setting (2 bytes), shapes (1), how the rest makes a frame (1), the rest.
// Frames and outputs are allocated exactly, so that the address sanitizer sees a step outside.
namespace slackline {

namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::uint64_t kSeed = 1234;
constexpr unsigned kKinds = 5;  // of codecs; each with and without error feedback
static_assert(static_cast<unsigned>(CodecKind::cast) + 1 == kKinds, "cast is the last kind");
constexpr unsigned kChoices = 64;  // of a kind's settings
constexpr std::array<float, 2> kSentinels = {-77.25F, 3e30F};

[[noreturn]] void report(const std::string& what) {
  std::fprintf(stderr, "frame_fuzz: %s\n", what.c_str());
  std::abort();
}

CodecSetting setting_of(std::uint8_t kind, std::uint8_t choice) {
  constexpr std::array<double, 4> kRatios = {1e-9, 0.1, 0.5, 1.0};
  constexpr std::array<int, 4> kBits = {2, 3, 4, 8};
  const DType travels = (choice & 1U) != 0 ? DType::bf16 : DType::f32;
  const unsigned rest = choice >> 1U;
  CodecSetting setting{.kind = static_cast<CodecKind>(kind % kKinds)};
  setting.factors = travels;
  setting.values = travels;
  setting.rank = 1 + static_cast<int>(rest % 8);
  setting.ratio = kRatios[rest % kRatios.size()];
  setting.bits = kBits[rest % kBits.size()];
  setting.scale = static_cast<ScaleOf>(rest / 3 % 5);
  setting.group = (rest & 16U) != 0 ? 8 : 11;
  if (kind >= kKinds) {
    setting.error_feedback = ErrorFeedback::lazy;
  }
  return setting;
}

const std::vector<std::vector<MatrixShape>>& shape_lists() {
  static const std::vector<std::vector<MatrixShape>> kShapes = {
      {{1, 1}}, {{16, 32}}, {{1, 7}, {33, 15}}, {{40, 3}}, {{5, 130}, {2, 2}, {1, 9}}, {{64, 64}}};
  return kShapes;
}

std::vector<CodecPart> parts_of(std::uint8_t choice) {
  std::vector<CodecPart> parts;
  for (const MatrixShape& shape : shape_lists()[choice]) {
    parts.push_back({.name = "m" + std::to_string(parts.size()), .shape = shape});
  }
  return parts;
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 37 + 11) % 101) - 50.0F;
  }
  return values;
}

// Matrices in memory of their own.
struct Matrices {
  explicit Matrices(const std::vector<CodecPart>& parts) {
    for (const CodecPart& part : parts) {
      memory.push_back(numbers(part.shape.num_elements()));
      views.push_back(
          Tensor(std::span(memory.back())).reshaped({part.shape.rows, part.shape.columns}));
    }
  }

  void fill(float value) {
    for (std::vector<float>& values : memory) {
      std::fill(values.begin(), values.end(), value);
    }
  }

  [[nodiscard]] bool holds_only(float value) const {
    return std::all_of(memory.begin(), memory.end(), [&](const std::vector<float>& values) {
      return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
    });
  }

  // Bit by bit: what was decoded may be NaN.
  [[nodiscard]] bool equals(const Matrices& other) const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const std::size_t bytes = memory[i].size() * sizeof(float);
      if (std::memcmp(memory[i].data(), other.memory[i].data(), bytes) != 0) {
        return false;
      }
    }
    return true;
  }

  std::vector<std::vector<float>> memory;
  Codec::Matrices views;
};

// A codec with a frame that it made and a stream with just the workspace it asks for.
struct Subject {
  Subject(const CodecSetting& codec_setting, const std::vector<CodecPart>& codec_parts)
      : setting(codec_setting), parts(codec_parts), codec(make_codec(setting, parts, kSeed)) {
    stream =
        std::make_unique<Stream>(Stream::Options{.workspace_bytes = codec->workspace_bytes(1)});
    valid.resize(codec->frame_bytes());
    codec->encode(*stream, Matrices(parts).views, {}, {.seed = kSeed, .step = 3}, view(valid, 0));
  }

  static Tensor view(std::vector<std::uint8_t>& bytes, std::size_t offset) {
    return Tensor(std::span(bytes).subspan(offset));
  }

  CodecSetting setting;
  std::vector<CodecPart> parts;
  std::unique_ptr<Codec> codec;
  std::unique_ptr<Stream> stream;
  std::vector<std::uint8_t> valid;
};

// Kept from input to input, for buffers of codecs are costly to allocate under sanitizers.
Subject& subject_of(Bytes choice) {
  static std::map<std::array<std::uint8_t, 3>, std::unique_ptr<Subject>> made;
  const std::array<std::uint8_t, 3> key = {
      static_cast<std::uint8_t>(choice[0] % (2 * kKinds)),
      static_cast<std::uint8_t>(choice[1] % kChoices),
      static_cast<std::uint8_t>(choice[2] % shape_lists().size())};
  std::unique_ptr<Subject>& subject = made[key];
  if (subject == nullptr) {
    subject = std::make_unique<Subject>(setting_of(key[0], key[1]), parts_of(key[2]));
  }
  return *subject;
}

// What arrives: the rest as it is; of the size that is due; the same behind a header that is due;
// or a whole frame in which pairs of the rest, a place and a byte, change single bytes.
enum class Making { plain, sized, headed, edited };

std::vector<std::uint8_t> frame_of(const Subject& subject, Making making, Bytes rest) {
  constexpr std::size_t kHeaderBytes = 16;
  constexpr std::size_t kEditBytes = 3;
  if (making == Making::plain) {
    return {rest.begin(), rest.end()};
  }
  std::vector<std::uint8_t> frame = subject.valid;
  if (making == Making::edited) {
    for (; rest.size() >= kEditBytes; rest = rest.subspan(kEditBytes)) {
      frame[(rest[0] + 256U * rest[1]) % frame.size()] = rest[2];
    }
    return frame;
  }
  const std::size_t kept = making == Making::headed ? kHeaderBytes : 0;
  const std::size_t count = std::min(rest.size(), frame.size() - kept);
  std::copy_n(rest.begin(), count, frame.begin() + static_cast<std::ptrdiff_t>(kept));
  return frame;
}

// Whether the frame was taken.
bool decode(Subject& subject, const Tensor& frame, Matrices& out, float sentinel, bool accumulate) {
  out.fill(sentinel);
  try {
    subject.codec->decode(*subject.stream, frame, out.views, accumulate);
    return true;
  } catch (const CommError&) {
    if (!out.holds_only(sentinel)) {
      report("a refused frame of " + codec_setting_json(subject.setting) + " changed the output");
    }
    return false;
  }
}

void run(Bytes input) {
  constexpr std::size_t kChoiceBytes = 4;
  if (input.size() < kChoiceBytes) {
    return;
  }
  Subject& subject = subject_of(input);
  const auto making = static_cast<Making>(input[3] % 4);
  // Frames that several ranks gathered stand one behind another, where alignment may be lost.
  const std::size_t before = (input[3] & 4U) != 0 ? subject.valid.size() : 0;
  std::vector<std::uint8_t> memory = frame_of(subject, making, input.subspan(kChoiceBytes));
  memory.insert(memory.begin(), before, 0);
  memory.shrink_to_fit();
  const Tensor frame = Subject::view(memory, before);

  Matrices once(subject.parts);
  Matrices again(subject.parts);
  const bool taken = decode(subject, frame, once, kSentinels[0], false);
  const bool taken_again = decode(subject, frame, again, kSentinels[1], false);
  if (!taken && std::equal(subject.valid.begin(),
                           subject.valid.end(),
                           memory.begin() + static_cast<std::ptrdiff_t>(before),
                           memory.end())) {
    report(codec_setting_json(subject.setting) + " does not take its own frame");
  }
  if (taken != taken_again || (taken && !once.equals(again))) {
    report("what " + codec_setting_json(subject.setting) + " decodes depends on the output before");
  }
  if (decode(subject, frame, again, kSentinels[0], true) != taken) {
    report("whether " + codec_setting_json(subject.setting) + " takes a frame depends on its use");
  }
}

}  // namespace

}  // namespace slackline

// libFuzzer calls it by this name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  slackline::run({data, size});
  return 0;
}
