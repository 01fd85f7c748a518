#include "data/tokenizers/sentencepiece_rules.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/error.h"

namespace slackline {
namespace {

constexpr std::uint64_t kNormalizer = 3;  // fields of ModelProto
constexpr std::uint64_t kDenormalizer = 5;
constexpr std::uint64_t kCharsmap = 2;  // field of NormalizerSpec

// Reads a message in protobuf's wire format, field by field.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    std::uint64_t number = 0;
    std::string_view bytes{};  // of a field that says its length, else none
  };

  // Says whether all was read.
  [[nodiscard]] bool is_at_end() const { return rest_.empty() && !is_broken_; }

  // Nothing at the end, and where the bytes are no fields that such models have.
  [[nodiscard]] std::optional<Field> next() {
    if (rest_.empty() || is_broken_) {
      return std::nullopt;
    }
    const std::optional<Field> field = read();
    is_broken_ = !field;
    return field;
  }

 private:
  std::optional<Field> read() {
    const std::optional<std::uint64_t> key = varint();
    if (!key) {
      return std::nullopt;
    }
    Field field{.number = static_cast<std::uint32_t>(*key) >> 3U};
    switch (*key & 7U) {
      case 0:
        return varint() ? std::optional(field) : std::nullopt;
      case 1:
        return take(8) ? std::optional(field) : std::nullopt;
      case 2: {
        const std::optional<std::uint64_t> length = varint();
        const std::optional<std::string_view> bytes = length ? take(*length) : std::nullopt;
        field.bytes = bytes.value_or("");
        return bytes ? std::optional(field) : std::nullopt;
      }
      case 5:
        return take(4) ? std::optional(field) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80U) {
        return value;
      }
    }
    return std::nullopt;
  }

  std::optional<std::string_view> take(std::uint64_t count) {
    if (count > rest_.size()) {
      return std::nullopt;
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  bool is_broken_ = false;
};

// A unit of the trie.
struct Unit {
  std::uint32_t bits = 0;

  [[nodiscard]] bool has_leaf() const { return (bits >> 8U & 1U) != 0; }

  [[nodiscard]] std::uint32_t value() const { return bits & 0x7fffffffU; }

  [[nodiscard]] std::uint32_t label() const { return bits & 0x800000ffU; }

  [[nodiscard]] std::uint32_t offset() const { return bits >> 10U << ((bits & 0x200U) >> 6U); }
};

// Follows every path that some text may take.
bool stays_inside(const std::vector<Unit>& trie, std::string_view texts) {
  constexpr std::uint32_t kLastChild = 0xff;
  if (trie.empty() || texts.empty() || texts.back() != '\0') {
    return false;
  }
  std::vector<bool> seen(trie.size(), false);
  std::vector<std::uint32_t> bases = {trie[0].offset()};
  while (!bases.empty()) {
    const std::uint32_t base = bases.back();
    bases.pop_back();
    if ((base | kLastChild) >= trie.size()) {
      return false;
    }
    if (seen[base]) {
      continue;
    }
    seen[base] = true;
    for (std::uint32_t byte = 0; byte <= kLastChild; ++byte) {
      const Unit& unit = trie[base ^ byte];
      if (unit.label() != byte) {
        continue;
      }
      const std::uint32_t child = (base ^ byte) ^ unit.offset();
      if (unit.has_leaf() && (child >= trie.size() || trie[child].value() >= texts.size())) {
        return false;
      }
      bases.push_back(child);
    }
  }
  return true;
}

bool is_sound(std::string_view charsmap) {
  std::uint32_t bytes = 0;
  if (charsmap.size() < sizeof bytes) {
    return false;
  }
  std::memcpy(&bytes, charsmap.data(), sizeof bytes);
  charsmap.remove_prefix(sizeof bytes);
  if (bytes > charsmap.size()) {
    return false;
  }
  std::vector<Unit> trie(bytes / sizeof(Unit));
  std::memcpy(trie.data(), charsmap.data(), trie.size() * sizeof(Unit));
  return stays_inside(trie, charsmap.substr(bytes));
}

}  // namespace

void require_sound_rules(std::string_view model, const std::string& source) {
  WireReader reader(model);
  while (const auto spec = reader.next()) {
    if (spec->number != kNormalizer && spec->number != kDenormalizer) {
      continue;
    }
    WireReader fields(spec->bytes);
    bool sound = true;
    while (const auto field = fields.next()) {
      sound =
          sound && (field->number != kCharsmap || field->bytes.empty() || is_sound(field->bytes));
    }
    if (!sound || !fields.is_at_end()) {
      throw FileError(source + ": a SentencePiece model with damaged rules of normalization");
    }
  }
  if (!reader.is_at_end()) {
    throw FileError(source + ": not a SentencePiece model: damaged, or of a form that is not read");
  }
}

}  // namespace slackline
