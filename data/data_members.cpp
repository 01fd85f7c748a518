#include "data/data_members.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "data/blend.h"

namespace slackline {
namespace {

DataMember whole_file(std::shared_ptr<const TokenFile> file,
                      const DataSource& source,
                      std::string_view split) {
  const std::uint64_t sequences = file->num_sequences();
  return {.file = std::move(file),
          .weight = source.weight.value_or(0.0),
          .split = split,
          .num_sequences = sequences};
}

// Gives members the weights that their sources lack.
void weigh_by_samples(const std::vector<DataSource>& sources,
                      std::int64_t sequence,
                      std::vector<DataMember>& members) {
  for (std::size_t m = 0; m < sources.size(); ++m) {
    if (!sources[m].weight) {
      const std::uint64_t tokens = tokens_of(members[m]);
      const std::uint64_t targets = tokens == 0 ? 0 : tokens - 1;
      const std::uint64_t samples = targets / static_cast<std::uint64_t>(sequence);
      members[m].weight = static_cast<double>(samples);
    }
  }
}

// Opens a source's file, whose tokenizer has to be that of the first file that has one.
std::shared_ptr<const TokenFile> open_source(const DataSource& source,
                                             std::int64_t vocabulary,
                                             DataMembers& members) {
  std::shared_ptr<const TokenFile> file = open_token_file(source.path, vocabulary);
  std::optional<StoredTokenizer> found = data_tokenizer(*file);
  if (found && members.tokenizer) {
    require_same_tokenizer(*found, *members.tokenizer);
  } else if (found) {
    members.tokenizer = std::move(found);
  }
  return file;
}

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

DataMembers open_data(const DataConfig& config, std::int64_t vocabulary, std::int64_t sequence) {
  constexpr std::string_view kTraining = "training";
  constexpr std::string_view kValidation = "validation";
  DataMembers members;
  for (const DataSource& source : config.train) {
    const std::shared_ptr<const TokenFile> file = open_source(source, vocabulary, members);
    DataMember& train = members.train.emplace_back(whole_file(file, source, kTraining));
    const auto bounds = split_bounds(config.split, file->num_sequences());
    train.num_sequences = bounds[1];
    if (config.split[1] > 0.0 && config.valid.empty()) {
      DataMember& valid = members.valid.emplace_back(whole_file(file, source, kValidation));
      valid.first_sequence = bounds[1];
      valid.num_sequences = bounds[2] - bounds[1];
    }
  }
  for (const DataSource& source : config.valid) {
    members.valid.push_back(
        whole_file(open_source(source, vocabulary, members), source, kValidation));
  }
  weigh_by_samples(config.train, sequence, members.train);
  weigh_by_samples(config.valid, sequence, members.valid);
  for (std::size_t m = 0; config.valid.empty() && m < members.valid.size(); ++m) {
    members.valid[m].weight = members.train[m].weight;
  }
  return members;
}

std::uint64_t tokens_of(const DataMember& member) {
  const std::uint64_t end = member.first_sequence + member.num_sequences;
  return member.file->sequence_start(end) - member.file->sequence_start(member.first_sequence);
}

std::string contents_of(const DataMember& member, std::span<const std::uint32_t> lengths) {
  constexpr std::uint64_t kRun = 16384;  // tokens: few runs, since each may wait for a far disk
  constexpr std::uint64_t kNumRuns = 64;
  Xxh3 hash;
  hash.update(std::as_bytes(lengths));
  const std::uint64_t start = member.file->sequence_start(member.first_sequence);
  const std::uint64_t tokens = tokens_of(member);
  const bool is_whole = tokens <= kNumRuns * kRun;
  const std::uint64_t num_runs = is_whole ? (tokens + kRun - 1) / kRun : kNumRuns;
  std::vector<TokenId> run(kRun);
  for (std::uint64_t i = 0; i < num_runs; ++i) {
    // The product would not overflow below 2^56 tokens.
    const std::uint64_t first = is_whole ? kRun * i : (tokens - kRun) * i / (kNumRuns - 1);
    const std::span<TokenId> part = std::span(run).first(std::min(kRun, tokens - first));
    member.file->read(start + first, part);
    hash.update(std::as_bytes(part));
  }
  return fmt::format("{} sequences with hash {}", member.num_sequences, hex_text(hash.digest()));
}

void require_one_sample(const DataMember& member, std::int64_t sequence) {
  const std::uint64_t tokens = tokens_of(member);
  if (tokens <= static_cast<std::uint64_t>(sequence)) {
    throw FileError(fmt::format(
        "{}: its {} split is too short: at least model.sequence + 1 = {} tokens are needed, "
        "{} of its {} sequences have {} (hint: change data.split, or give data.valid)",
        member.file->path(),
        member.split,
        sequence + 1,
        member.num_sequences,
        member.file->num_sequences(),
        tokens));
  }
}

}  // namespace slackline
