#include "data/tokenizers/sentencepiece_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"

namespace slackline {
namespace {

constexpr std::uint64_t kPieces = 1;  // fields of ModelProto
constexpr std::uint64_t kNormalizer = 3;
constexpr std::uint64_t kDenormalizer = 5;
constexpr std::uint64_t kCharsmap = 2;   // field of NormalizerSpec
constexpr std::uint64_t kPieceText = 1;  // fields of SentencePiece
constexpr std::uint64_t kPieceType = 3;
constexpr std::uint64_t kUserDefined = 4;  // of the types

// The library has room for so many finds at one place of a text, and does not look at how many
// there are: rules whose left sides begin each other, as its builder counts them, and the user's
// pieces.
constexpr int kMostRulesOfAPlace = 31;
constexpr std::size_t kMostPiecesOfAPlace = 64;
// Bytes that a rule puts in the place of others: of NFKC's the longest are 33. More would make a
// short text a long one.
constexpr std::size_t kMostBytesOfARule = 255;

// Reads a message in protobuf's wire format, field by field.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;   // of a varint
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
      case 0: {
        const std::optional<std::uint64_t> value = varint();
        field.value = value.value_or(0);
        return value ? std::optional(field) : std::nullopt;
      }
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

// Follows every path that some text may take through a trie, each node once.
class TrieWalk {
 public:
  TrieWalk(const std::vector<Unit>& trie, std::string_view texts)
      : trie_(trie), texts_(texts), rules_(trie.size(), kUnseen) {}

  // Whether each path ends, stays inside, leads to short texts alone and passes few rules.
  [[nodiscard]] bool is_sound() {
    if (trie_.empty() || texts_.empty() || texts_.back() != '\0' || !enter(trie_[0].offset())) {
      return false;
    }
    while (!path_.empty()) {
      Step& step = path_.back();
      if (step.byte > kLastChild) {
        rules_[step.base] = step.rules;
        path_.pop_back();
        continue;
      }
      const std::uint32_t at = step.base ^ step.byte;
      const Unit& unit = trie_[at];
      if (unit.label() != step.byte) {
        ++step.byte;
        continue;
      }
      const std::uint32_t child = at ^ unit.offset();
      if (unit.has_leaf() && !leads_to_text(child)) {
        return false;
      }
      if (child < rules_.size() && rules_[child] >= 0) {  // walked before, or just now
        step.rules = std::max(step.rules, (unit.has_leaf() ? 1 : 0) + rules_[child]);
        ++step.byte;
        if (step.rules > kMostRulesOfAPlace) {
          return false;
        }
      } else if (!enter(child)) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kLastChild = 0xff;
  static constexpr int kUnseen = -1;
  static constexpr int kOnPath = -2;

  // A node of the path under way, whose children before `byte` have been walked.
  struct Step {
    std::uint32_t base = 0;
    std::uint32_t byte = 0;
    int rules = 0;  // the most behind it that a path passes
  };

  // False where the node leads out of the trie, or stands on its own path.
  bool enter(std::uint32_t base) {
    if ((base | kLastChild) >= trie_.size() || rules_[base] == kOnPath) {
      return false;
    }
    rules_[base] = kOnPath;
    path_.push_back({.base = base});
    return true;
  }

  [[nodiscard]] bool leads_to_text(std::uint32_t leaf) const {
    if (leaf >= trie_.size() || trie_[leaf].value() >= texts_.size()) {
      return false;
    }
    const std::string_view text = texts_.substr(trie_[leaf].value());
    return text.substr(0, kMostBytesOfARule + 1).find('\0') != std::string_view::npos;
  }

  const std::vector<Unit>& trie_;
  std::string_view texts_;
  std::vector<int> rules_;  // by base: the most that a path passes from it on
  std::vector<Step> path_{};
};

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
  return TrieWalk(trie, charsmap.substr(bytes)).is_sound();
}

// The text of a piece that the model's user has defined; nothing of others.
std::optional<std::string_view> user_defined(std::string_view piece) {
  WireReader fields(piece);
  std::string_view text;
  bool is_of_user = false;
  while (const auto field = fields.next()) {
    text = field->number == kPieceText ? field->bytes : text;
    is_of_user = field->number == kPieceType ? field->value == kUserDefined : is_of_user;
  }
  return is_of_user ? std::optional(text) : std::nullopt;
}

// Whether no more pieces begin each other than the library has room for.
bool are_few_at_a_place(std::vector<std::string_view> pieces) {
  std::ranges::sort(pieces);
  std::vector<std::string_view> begin_each_other;
  for (const std::string_view piece : pieces) {
    while (!begin_each_other.empty() && !piece.starts_with(begin_each_other.back())) {
      begin_each_other.pop_back();
    }
    begin_each_other.push_back(piece);
    if (begin_each_other.size() > kMostPiecesOfAPlace) {
      return false;
    }
  }
  return true;
}

}  // namespace

void require_sound_rules(std::string_view model, const std::string& source) {
  WireReader reader(model);
  std::vector<std::string_view> of_user;
  while (const auto spec = reader.next()) {
    if (spec->number == kPieces) {
      if (const auto piece = user_defined(spec->bytes)) {
        of_user.push_back(*piece);
      }
    }
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
  if (!are_few_at_a_place(std::move(of_user))) {
    throw FileError(fmt::format(
        "{}: a SentencePiece model of which more than {} user-defined pieces begin each other",
        source,
        kMostPiecesOfAPlace));
  }
  if (!reader.is_at_end()) {
    throw FileError(source + ": not a SentencePiece model: damaged, or of a form that is not read");
  }
}

}  // namespace slackline
