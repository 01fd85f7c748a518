#include "tools/hugging_face_tokenizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file_io.h"

namespace slackline {

void write_gpt2_tokenizer(const std::string& directory, const Gpt2Vocabulary& vocabulary) {
  // Text put together, since the library's ordered objects search a key before they add it.
  std::string ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id].empty()) {
      ids += fmt::format(
          "{}{}: {}", ids.empty() ? "" : ", ", nlohmann::json(vocabulary.tokens[id]).dump(), id);
    }
  }
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : vocabulary.merges) {
    merges += fmt::format("{} {}\n", left, right);
  }
  write_file_atomically(directory + "/vocab.json", "{" + ids + "}");
  write_file_atomically(directory + "/merges.txt", merges);
}

}  // namespace slackline
