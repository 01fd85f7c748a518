#include "data/formats/stored_tokenizer.h"

#include <string_view>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/tokenizer_file.h"

namespace slackline {

std::optional<StoredTokenizer> data_tokenizer(const TokenFile& file) {
  std::string prefix = file.path();
  if (prefix.ends_with(".bin")) {
    prefix.resize(prefix.size() - std::string_view(".bin").size());
  }
  std::string path = tokenizer_path(prefix);
  if (!path_exists(path)) {
    return std::nullopt;
  }
  std::string json = read_file(path);
  return StoredTokenizer{.path = std::move(path), .json = std::move(json)};
}

void require_same_tokenizer(const StoredTokenizer& tokenizer, const StoredTokenizer& expected) {
  if (tokenizer.json == expected.json) {
    return;
  }
  const auto ours = tokenizer_from_json(tokenizer.json, tokenizer.path);
  const auto theirs = tokenizer_from_json(expected.json, expected.path);
  if (tokenizer_identity(*ours) != tokenizer_identity(*theirs)) {
    throw FileError(with_hint(tokenizer.path + ": another tokenizer than " + expected.path,
                              "prepare all data with one tokenizer, that of the checkpoint where "
                              "there is one"));
  }
}

}  // namespace slackline
