#include "data/data_members.h"

#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "data/blend.h"
#include "data/tokenizer_file.h"

namespace slackline {
namespace {

DataMember whole_file(std::shared_ptr<const TokenFile> file,
                      double weight,
                      std::string_view split) {
  const std::uint64_t sequences = file->num_sequences();
  return {.file = std::move(file), .weight = weight, .split = split, .num_sequences = sequences};
}

// Remembers the tokenizer of the first file that has one, and compares the others with it.
class TokenizerOfAll {
 public:
  void add(const TokenFile& file) {
    std::string prefix = file.path();
    if (prefix.ends_with(".bin")) {
      prefix.resize(prefix.size() - std::string_view(".bin").size());
    }
    const std::string path = tokenizer_path(prefix);
    if (!path_exists(path)) {
      return;
    }
    std::string content = read_file(path);
    if (!content_) {
      content_ = std::move(content);
      path_ = path;
    } else if (*content_ != content) {
      throw FileError(fmt::format(
          "{}: another tokenizer than that of the other data (hint: prepare all data with one "
          "tokenizer); the other is {}",
          path,
          path_));
    }
  }

  [[nodiscard]] std::optional<std::string> take() { return std::move(content_); }

 private:
  std::optional<std::string> content_;
  std::string path_;
};

}  // namespace

std::array<std::uint64_t, 4> split_bounds(const Split& split, std::uint64_t sequences) {
  const std::vector<double> shares = normalized_weights(split);
  std::array<std::uint64_t, 4> bounds{};
  double sum = 0.0;
  for (std::size_t part = 0; part < shares.size(); ++part) {
    sum += shares[part];
    // std::nearbyint rounds halves to even, as Python's round does.
    bounds[part + 1] =
        static_cast<std::uint64_t>(std::nearbyint(sum * static_cast<double>(sequences)));
  }
  return bounds;
}

DataMembers open_data(const DataConfig& config, std::int64_t vocabulary) {
  constexpr std::string_view kTraining = "training";
  constexpr std::string_view kValidation = "validation";
  DataMembers members;
  TokenizerOfAll tokenizer;
  for (const DataSource& source : config.train) {
    const std::shared_ptr<const TokenFile> file = open_token_file(source.path, vocabulary);
    tokenizer.add(*file);
    DataMember& train = members.train.emplace_back(whole_file(file, source.weight, kTraining));
    const auto bounds = split_bounds(config.split, file->num_sequences());
    train.num_sequences = bounds[1];
    if (config.split[1] > 0.0) {
      DataMember& valid = members.valid.emplace_back(whole_file(file, source.weight, kValidation));
      valid.first_sequence = bounds[1];
      valid.num_sequences = bounds[2] - bounds[1];
    }
  }
  for (const DataSource& source : config.valid) {
    const std::shared_ptr<const TokenFile> file = open_token_file(source.path, vocabulary);
    tokenizer.add(*file);
    members.valid.emplace_back(whole_file(file, source.weight, kValidation));
  }
  members.tokenizer = tokenizer.take();
  return members;
}

}  // namespace slackline
