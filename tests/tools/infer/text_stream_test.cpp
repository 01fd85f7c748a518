#include "tools/infer/text_stream.h"

#include <string>
#include <vector>

#include "core/file_io.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

// Everything a stream gives, in pieces.
std::vector<std::string> pieces(const Tokenizer* tokenizer, const std::vector<TokenId>& tokens) {
  TextStream stream(tokenizer);
  std::vector<std::string> shown;
  shown.reserve(tokens.size() + 1);
  for (const TokenId token : tokens) {
    shown.push_back(stream.add({&token, 1}));
  }
  shown.push_back(stream.finish());
  return shown;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += part;
  }
  return text;
}

}  // namespace

TEST_CASE("without a tokenizer the text is the ids, separated by spaces") {
  CHECK(joined(pieces(nullptr, {5, 0, 12})) == "5 0 12");
}

TEST_CASE("a character of several tokens is shown when it is whole") {
  const ByteTokenizer tokenizer;
  const std::vector<std::string> shown = pieces(&tokenizer, tokenizer.encode("a\u00e9!"));
  CHECK(shown == std::vector<std::string>{"a", "", "\u00e9", "!", ""});
}

TEST_CASE("bytes that are no character are shown in the end, none of them twice") {
  const ByteTokenizer tokenizer;
  CHECK(joined(pieces(&tokenizer, {'a', 0xff, 'b'})) ==
        "a\xff"
        "b");
  CHECK(joined(pieces(&tokenizer, {'a', 0xe2, 0x82})) == "a\xe2\x82");
  CHECK(joined(pieces(&tokenizer, {'a', 256, 'b'})) == "ab");  // end-of-text reads as nothing
}

TEST_CASE("the pieces of a SentencePiece text join to the text of all its tokens") {
  const std::string path = std::string(SL_SOURCE_DIR) + "/tests/golden/sentencepiece/model.model";
  const SentencePieceTokenizer tokenizer(read_file(path), path);
  for (const std::string text :
       {"the cat and the dog", " two  spaces ", "na\u00efve \u4f60\u597d \U0001f600 end"}) {
    const std::vector<TokenId> tokens = tokenizer.encode(text);
    INFO(text);
    CHECK(joined(pieces(&tokenizer, tokens)) == tokenizer.decode(tokens));
  }
  // No text is encoded so, but a model may make it.
  std::vector<TokenId> tokens = tokenizer.encode("the cat");
  const std::string before = tokenizer.decode(tokens);
  tokens.push_back(0);
  while (tokenizer.decode(tokens) != before + " ") {
    ++tokens.back();
    REQUIRE(tokens.back() < tokenizer.vocabulary_size());
  }
  tokens.push_back(tokens.back());
  const std::vector<TokenId> more = tokenizer.encode("and the dog");
  tokens.insert(tokens.end(), more.begin(), more.end());
  CHECK(joined(pieces(&tokenizer, tokens)) == tokenizer.decode(tokens));
}

}  // namespace slackline
