#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <algorithm>
#include <exception>
#include <new>
#include <sentencepiece_processor.h>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "data/tokenizers/sentencepiece_rules.h"
#include "data/tokenizers/utf8.h"

namespace slackline {
namespace {

constexpr std::string_view kSpacePiece = "\xe2\x96\x81";  // U+2581, how a piece spells a space

// Whether white space in the piece stands only at its front, so that no token reaches over a space
// from the word before it.
bool is_space_first(std::string_view piece) {
  bool in_word = false;
  while (!piece.empty()) {
    const bool spelled = piece.substr(0, kSpacePiece.size()) == kSpacePiece;
    const bool space = spelled || piece.front() == ' ' || piece.front() == '\n';
    if (space && in_word) {
      return false;
    }
    in_word = !space;
    piece.remove_prefix(spelled ? kSpacePiece.size() : 1);
  }
  return true;
}

// Whether a cut may stand beside the character: not beside other white space, which models may
// join, nor beside marks and compatibility forms, some of which normalize to white space.
bool may_stand_beside_cut(char32_t character) {
  if (character < 0x80U) {
    return character > U' ' && character < U'\x7f';
  }
  const CharKind kind = kind_of(character);
  const bool mark = character >= 0x300U && character < 0x380U;
  const bool compatibility_form = character >= 0xf900U && character <= 0xffffU;
  return (kind == CharKind::letter || kind == CharKind::number) && !mark && !compatibility_form;
}

// Loads a model. Returns what is wrong with it, which the library says in two ways.
std::string load_problem(sentencepiece::SentencePieceProcessor& processor,
                         const std::string& model) {
  try {
    const auto status = processor.LoadFromSerializedProto(model);
    return status.ok() ? "" : status.ToString();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& source)
    : model_(std::move(model)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  require_sound_rules(model_, source);
  const std::string problem = load_problem(*processor_, model_);
  if (!problem.empty() || processor_->GetPieceSize() == 0) {
    throw FileError(fmt::format("{}: not a SentencePiece model: {}", source, problem));
  }
  end_of_text_ = processor_->eos_id() >= 0 ? processor_->eos_id() : processor_->GetPieceSize();
  space_ = processor_->PieceToId({kSpacePiece.data(), kSpacePiece.size()});
  if (pieces_keep_words_apart()) {
    std::transform(kSeparators.begin(), kSeparators.end(), continuations_.begin(), [this](char c) {
      return find_continuation(c);
    });
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::int64_t SentencePieceTokenizer::vocabulary_size() const {
  return std::max<std::int64_t>(processor_->GetPieceSize(), end_of_text_ + 1);
}

std::vector<TokenId> SentencePieceTokenizer::encode_whole(std::string_view text) const {
  std::vector<TokenId> ids;
  const auto status = processor_->Encode({text.data(), text.size()}, &ids);
  SL_CHECK(status.ok(), status.ToString());
  return ids;
}

std::vector<TokenId> SentencePieceTokenizer::encode_continuation(std::string_view text,
                                                                 Continuation how) const {
  if (how == Continuation::without_space) {
    text.remove_prefix(1);
  }
  std::vector<TokenId> ids = encode_whole(text);
  if (how == Continuation::without_first_token && !ids.empty() && ids.front() == space_) {
    ids.erase(ids.begin());
  }
  return ids;
}

bool SentencePieceTokenizer::pieces_keep_words_apart() const {
  for (int id = 0; id < processor_->GetPieceSize(); ++id) {
    if (!is_space_first(processor_->IdToPiece(id))) {
      return false;
    }
  }
  return true;
}

// What a model does with white space is a setting of it, the same for every text: a few short texts
// show it. The last of them has a character for private use, which models do not know: some join
// the unknown characters on both sides of one.
SentencePieceTokenizer::Continuation SentencePieceTokenizer::find_continuation(
    char separator) const {
  using enum Continuation;
  for (const Continuation how : {as_is, without_space, without_first_token}) {
    const auto gives_ids_of_whole = [&](std::string_view left, std::string_view right) {
      const std::string rest = separator + std::string(right);
      std::vector<TokenId> pieces = encode_whole(left);
      const std::vector<TokenId> second = encode_continuation(rest, how);
      pieces.insert(pieces.end(), second.begin(), second.end());
      return pieces == encode_whole(std::string(left) + rest);
    };
    if (gives_ids_of_whole("a", "b") && gives_ids_of_whole("It was,", "the end. Of it") &&
        gives_ids_of_whole("7", "(8)") && gives_ids_of_whole("~", "x\ny z") &&
        gives_ids_of_whole("\xee\x80\x80", "\xee\x80\x80")) {
      return how;
    }
  }
  return none;
}

SentencePieceTokenizer::Continuation SentencePieceTokenizer::continuation_at(char c) const {
  const auto* const found = std::find(kSeparators.begin(), kSeparators.end(), c);
  return found == kSeparators.end() ? Continuation::none
                                    : continuations_[found - kSeparators.begin()];
}

void SentencePieceTokenizer::encode_part(std::string_view text,
                                         TextPart part,
                                         std::vector<TokenId>& ids) const {
  if (text.empty()) {
    return;
  }
  std::vector<TokenId> encoded;
  if (part == TextPart::start) {
    encoded = encode_whole(text);
  } else {
    const Continuation how = continuation_at(text.front());
    SL_CHECK(how != Continuation::none, "a text continues where split_point did not cut it");
    encoded = encode_continuation(text, how);
  }
  ids.insert(ids.end(), encoded.begin(), encoded.end());
}

std::string SentencePieceTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  std::vector<int> known;
  const auto flush = [&] {
    std::string part;
    const auto status = processor_->Decode(known, &part);
    SL_CHECK(status.ok(), status.ToString());
    text += part;
    known.clear();
  };
  for (const TokenId id : ids) {
    if (id == end_of_text_) {  // the next document begins like the first one
      flush();
    } else if (id >= 0 && id < processor_->GetPieceSize()) {
      known.push_back(id);
    } else {
      flush();
      text += kReplacement;
    }
  }
  flush();
  return text;
}

std::size_t SentencePieceTokenizer::split_point(std::string_view text) const {
  if (text.size() < 3) {
    return 0;
  }
  for (std::size_t position = text.size() - 2; position > 0; --position) {
    if (continuation_at(text[position]) != Continuation::none &&
        may_stand_beside_cut(char_before(text, position).value) &&
        may_stand_beside_cut(char_at(text, position + 1).value)) {
      return position;
    }
  }
  return 0;
}

}  // namespace slackline
