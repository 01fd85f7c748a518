#include "data/dataset.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "core/shown_text.h"

namespace slackline {
namespace {

// A split that is too short comes first: where no weights are given, it has none.
std::vector<double> weights_of(std::span<const DataMember> members, std::int64_t sequence) {
  std::vector<double> weights;
  weights.reserve(members.size());
  for (const DataMember& member : members) {
    require_one_sample(member, sequence);
    weights.push_back(member.weight);
  }
  std::vector<double> shares = normalized_weights(weights);
  for (std::size_t m = 0; m < shares.size(); ++m) {
    if (!(shares[m] > 0.0)) {
      throw ConfigError(fmt::format(
          "data: the weight of data set {}, {:g}, is nothing beside all together", m, weights[m]));
    }
  }
  return shares;
}

// An order has one for each time that its run was made longer.
constexpr std::size_t kMaxBlocks = 4096;

std::uint64_t checked_samples(std::uint64_t samples) {
  SL_CHECK(samples <= static_cast<std::uint64_t>(Dataset::kMaxSamples), std::to_string(samples));
  return samples;
}

std::vector<std::uint32_t> lengths_of(const DataMember& member) {
  std::vector<std::uint32_t> lengths;
  lengths.reserve(member.num_sequences);
  for (std::uint64_t s = 0; s < member.num_sequences; ++s) {
    const std::uint64_t length = member.file->sequence_length(member.first_sequence + s);
    lengths.push_back(static_cast<std::uint32_t>(length));
  }
  return lengths;
}

// An order has an entry for every sequence of every epoch. Sequences with tokens are no more than
// the tokens of the samples; only empty ones can make it larger than what is trained on.
void require_orderable(const DataMember& data,
                       std::span<const std::uint32_t> lengths,
                       std::uint64_t epochs) {
  constexpr double kFew = 1 << 22;  // entries, some dozen bytes each
  const auto empty = std::ranges::count(lengths, 0U);
  const double entries = static_cast<double>(empty) * static_cast<double>(epochs);
  const double tokens = static_cast<double>(tokens_of(data)) * static_cast<double>(epochs);
  if (entries > tokens + kFew) {
    throw FileError(
        fmt::format("{}: {} of {} sequences of the {} split are empty, and the run "
                    "takes {} epochs of it; prepare it without empty documents",
                    data.file->path(),
                    empty,
                    lengths.size(),
                    data.split,
                    epochs));
  }
}

}  // namespace

Dataset::Dataset(std::vector<DataMember> members, const DatasetOptions& options)
    : options_(options),
      weights_(weights_of(members, options.sequence)),
      blend_(weights_, checked_samples(options.samples)) {
  if (!options_.stored.empty() && options_.stored.size() != members.size()) {
    throw ConfigError(fmt::format("data: the checkpoint continues a run on {} data sets; got {}",
                                  options_.stored.size(),
                                  members.size()));
  }
  for (std::size_t m = 0; m < members.size(); ++m) {
    Member& member = members_.emplace_back();
    member.data = std::move(members[m]);
    const std::vector<std::uint32_t> lengths = lengths_of(member.data);
    member.contents = contents_of(member.data, lengths);
    member.state = {static_cast<std::int64_t>(tokens_of(member.data))};
    if (!options_.stored.empty()) {
      require_stored_data(m);
      restore_blocks(member, lengths, options_.stored[m]);
    } else if (options_.samples > 0) {
      const bool alone = weights_.size() == 1;
      append_block(member,
                   lengths,
                   alone ? options_.samples : member_samples(options_.samples, weights_[m]));
    }
    if (const std::uint64_t needed = blend_.taken(m); needed > member.num_samples) {
      append_block(member, lengths, needed - member.num_samples);
    }
  }
  options_.stored.clear();
  options_.stored_contents.clear();
}

void Dataset::append_block(Member& member,
                           std::span<const std::uint32_t> lengths,
                           std::uint64_t samples) {
  require_orderable(member.data,
                    lengths,
                    SampleOrder::epochs_of(samples,
                                           static_cast<std::uint64_t>(options_.sequence),
                                           static_cast<std::uint64_t>(member.state.front())));
  const SampleOrder& block = member.blocks.emplace_back(
      lengths,
      SampleOrderOptions{.seed = options_.seed,
                         .sequence = static_cast<std::uint64_t>(options_.sequence),
                         .samples = samples,
                         .block = member.blocks.size()});
  member.num_samples += block.num_samples();
  member.state.push_back(static_cast<std::int64_t>(block.epochs));
  member.state.push_back(static_cast<std::int64_t>(samples));
}

// Throws ConfigError where the stored order of member `m` was built from other data.
void Dataset::require_stored_data(std::size_t m) const {
  const Member& member = members_[m];
  const MemberOrder& stored = options_.stored[m];
  const std::string& path = member.data.file->path();
  if (stored.size() % 2 == 0 || stored.front() != member.state.front()) {
    throw ConfigError(
        fmt::format("data: the checkpoint continues a run on other data: the {} split of {} had {} "
                    "tokens; got {}",
                    member.data.split,
                    path,
                    stored.empty() ? 0 : stored.front(),
                    member.state.front()));
  }
  if (!options_.stored_contents.empty() && options_.stored_contents[m] != member.contents) {
    throw ConfigError(
        fmt::format("data: the checkpoint continues a run on other data: the {} split of {} has as "
                    "many tokens, {}, but other ones or other sequences; had {}; got {} (hint: "
                    "files may move, but must stay what they were, and data sets in their order)",
                    member.data.split,
                    path,
                    member.state.front(),
                    shown_value(options_.stored_contents[m]),
                    member.contents));
  }
}

void Dataset::restore_blocks(Member& member,
                             std::span<const std::uint32_t> lengths,
                             const MemberOrder& stored) {
  const std::string& path = member.data.file->path();
  std::int64_t in_all = 0;
  for (std::size_t i = 1; i < stored.size(); i += 2) {
    const std::int64_t samples = stored[i + 1];
    if (samples <= 0 || samples > kMaxSamples - in_all || stored.size() > 2 * kMaxBlocks) {
      throw FileError(fmt::format("{}: the checkpoint's sample order is broken", path));
    }
    const auto epochs = static_cast<std::int64_t>(
        SampleOrder::epochs_of(static_cast<std::uint64_t>(samples),
                               static_cast<std::uint64_t>(options_.sequence),
                               static_cast<std::uint64_t>(member.state.front())));
    if (epochs != stored[i]) {
      throw ConfigError(fmt::format(
          "data: the checkpoint's order of {} has {} epochs for {} samples (was model.sequence "
          "changed?); got {}",
          path,
          stored[i],
          samples,
          epochs));
    }
    append_block(member, lengths, static_cast<std::uint64_t>(samples));
    in_all += samples;
  }
}

void Dataset::sample(std::uint64_t index, std::span<TokenId> tokens) const {
  SL_CHECK(index < num_samples(), std::to_string(index));
  SL_CHECK_EQ(tokens.size(), static_cast<std::size_t>(options_.sequence) + 1);
  const Blend::Choice choice = blend_[index];
  const Member& member = members_[choice.member];
  std::uint64_t sample = choice.sample;
  const SampleOrder* block = member.blocks.data();
  while (sample >= block->num_samples()) {
    sample -= block->num_samples();
    ++block;
  }
  std::vector<SampleOrder::Part> parts;
  block->append_parts(sample, parts);
  const TokenFile& file = *member.data.file;
  for (const SampleOrder::Part& part : parts) {
    const std::uint64_t start = file.sequence_start(member.data.first_sequence + part.sequence);
    file.read(start + part.offset, tokens.first(part.count));
    tokens = tokens.subspan(part.count);
  }
}

std::vector<MemberOrder> Dataset::order_state() const {
  std::vector<MemberOrder> state;
  state.reserve(members_.size());
  for (const Member& member : members_) {
    state.push_back(member.state);
  }
  return state;
}

std::vector<std::string> Dataset::contents() const {
  std::vector<std::string> contents;
  contents.reserve(members_.size());
  for (const Member& member : members_) {
    contents.push_back(member.contents);
  }
  return contents;
}

}  // namespace slackline
