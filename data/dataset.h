#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/data_members.h"
#include "data/sample_order.h"

namespace slackline {

// What the order of one member was built from: {tokens of an epoch, then for each block of the
// order its epochs and the samples that it was asked for}. Numbers, so that a checkpoint holds a
// dataset's order as lists.
using MemberOrder = std::vector<std::int64_t>;

struct DatasetOptions {
  std::uint64_t seed = 1234;
  std::int64_t sequence = 0;  // T
  std::uint64_t samples = 0;  // of the whole run
  std::vector<MemberOrder>
      stored{};  // of the checkpoint that the run continues; empty for a new run
  // contents_of() the members that `stored` was built from; empty where the checkpoint does not
  // say.
  std::vector<std::string> stored_contents{};
};

// The samples of one split over all files, in training order: Megatron's for (seed, T, samples of
// the run), blended by weight where there are several files.
//
// Sample i depends on the options alone, not on what was read before: a run that stops after n
// samples continues with sample n. A run made longer keeps the order it had and, where that ends,
// appends a block shuffled apart (SampleOrderOptions::block). Any number of threads may read.
class Dataset {
 public:
  // Orders are kept in memory, four bytes a sample and more.
  static constexpr std::int64_t kMaxSamples = std::int64_t{1} << 33U;

  // Throws FileError for a split that is shorter than T + 1 tokens, and ConfigError where the
  // stored order was built from other data. REQUIRES: options.samples <= kMaxSamples; stored
  // contents, where there are any, are as many as stored orders.
  Dataset(std::vector<DataMember> members, const DatasetOptions& options);

  [[nodiscard]] std::uint64_t num_samples() const { return options_.samples; }

  // Writes the T + 1 tokens of a sample: inputs are the first T of them, targets the last T.
  // REQUIRES: index < num_samples(), tokens.size() == T + 1.
  void sample(std::uint64_t index, std::span<TokenId> tokens) const;

  // For DatasetOptions::stored of a run that continues this one. Lists as JSON holds them.
  [[nodiscard]] std::vector<MemberOrder> order_state() const;

  // For DatasetOptions::stored_contents.
  [[nodiscard]] std::vector<std::string> contents() const;

 private:
  // A file's part with the blocks of its order.
  struct Member {
    DataMember data;
    std::string contents;
    MemberOrder state;
    std::vector<SampleOrder> blocks;
    std::uint64_t num_samples = 0;  // of all blocks
  };

  void append_block(Member& member, std::span<const std::uint32_t> lengths, std::uint64_t samples);
  void require_stored_data(std::size_t m) const;
  void restore_blocks(Member& member,
                      std::span<const std::uint32_t> lengths,
                      const MemberOrder& stored);

  DatasetOptions options_;
  std::vector<double> weights_;  // normalized
  Blend blend_;
  std::vector<Member> members_;
};

}  // namespace slackline
