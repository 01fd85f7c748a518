#include "data/formats/token_file.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/tokenizer_file.h"

namespace slackline {
namespace {

// The prefix that the name of a .bin or .idx stands for; a prefix may itself end so.
std::string megatron_prefix(const std::string& path) {
  if (is_regular_file(path + ".idx")) {
    return path;
  }
  for (const std::string_view suffix : {".bin", ".idx"}) {
    if (path.ends_with(suffix)) {
      return path.substr(0, path.size() - suffix.size());
    }
  }
  return path;
}

bool begins_as_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first = 0;
  file >> first;
  return first == '{';
}

}  // namespace

std::vector<std::string> token_file_paths(const std::string& prefix_or_path) {
  const std::string prefix = megatron_prefix(prefix_or_path);
  std::vector<std::string> paths = {prefix + ".bin", prefix + ".idx", tokenizer_path(prefix)};
  if (std::find(paths.begin(), paths.end(), prefix_or_path) == paths.end()) {
    paths.insert(paths.begin(), prefix_or_path);
  }
  return paths;
}

bool token_file_exists(const std::string& prefix_or_path) {
  return is_regular_file(megatron_prefix(prefix_or_path) + ".idx") ||
         (is_regular_file(prefix_or_path) && is_llmc_file(prefix_or_path));
}

std::unique_ptr<TokenFile> open_token_file(const std::string& prefix_or_path,
                                           std::int64_t vocabulary) {
  const std::string prefix = megatron_prefix(prefix_or_path);
  const bool has_index = is_regular_file(prefix + ".idx");
  // llm.c's files are often named .bin too: what they begin with tells them from Megatron's.
  if (is_regular_file(prefix_or_path) && is_llmc_file(prefix_or_path)) {
    return open_llmc_file(prefix_or_path, vocabulary);
  }
  if (is_regular_file(prefix_or_path) && !has_index && begins_as_json(prefix_or_path)) {
    throw FileError(fmt::format(
        "{}: offset 0: JSON text: tasks files as training data are not built yet (hint: `slackline "
        "score` reads them, and `slackline prepare` makes token files of lines with a \"text\")",
        prefix_or_path));
  }
  if (is_regular_file(prefix_or_path) && !has_index) {
    throw FileError(fmt::format(
        "{}: offset 0: wrong magic: not an llm.c token file, nor is there a Megatron index "
        "{}.idx (hint: `slackline prepare` makes token files from text)",
        prefix_or_path,
        prefix));
  }
  if (has_index || is_regular_file(prefix + ".bin")) {
    return open_megatron_file(prefix, vocabulary);
  }
  throw FileError(fmt::format("{}: no such data: neither {}.bin and {}.idx nor an llm.c token file",
                              prefix_or_path,
                              prefix,
                              prefix));
}

}  // namespace slackline
