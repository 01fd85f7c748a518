#include "data/sample_order.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/data/golden_arrays.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

const std::vector<std::string> kOrders = {"one_epoch",
                                          "one_epoch_exact",
                                          "several_epochs",
                                          "last_epoch_separate",
                                          "short_documents",
                                          "one_long_document",
                                          "second_split",
                                          "empty_documents"};

std::vector<std::uint32_t> split_lengths(const GoldenArrays& golden) {
  const std::vector<std::int64_t> lengths = golden.integers("lengths");
  std::vector<std::uint32_t> selected;
  for (const std::int64_t document : golden.integers("documents")) {
    selected.push_back(static_cast<std::uint32_t>(lengths.at(document)));
  }
  return selected;
}

SampleOrderOptions options_of(const GoldenArrays& golden) {
  return {.seed = golden.integer("seed"),
          .sequence = golden.integer("sequence"),
          .samples = golden.integer("num_samples")};
}

// Positions in the file of the tokens of a sample.
std::vector<std::int64_t> token_positions(const SampleOrder& order,
                                          const GoldenArrays& golden,
                                          std::uint64_t index) {
  const std::vector<std::int64_t> lengths = golden.integers("lengths");
  const std::vector<std::int64_t> documents = golden.integers("documents");
  std::vector<SampleOrder::Part> parts;
  order.append_parts(index, parts);
  std::vector<std::int64_t> positions;
  for (const SampleOrder::Part& part : parts) {
    const std::int64_t start = std::accumulate(
        lengths.begin(), lengths.begin() + documents[part.sequence], std::int64_t{0});
    for (std::uint64_t i = 0; i < part.count; ++i) {
      positions.push_back(start + static_cast<std::int64_t>(part.offset + i));
    }
  }
  return positions;
}

std::vector<SampleOrder::Part> all_parts(const SampleOrder& order) {
  std::vector<SampleOrder::Part> parts;
  for (std::uint64_t i = 0; i < order.num_samples(); ++i) {
    order.append_parts(i, parts);
  }
  return parts;
}

}  // namespace

TEST_CASE("the shuffle is NumPy's legacy one for every seed and size, and chains") {
  const GoldenArrays golden("shuffle");
  for (const std::uint32_t seed : {0U, 42U, 1234U}) {
    const std::string name = std::to_string(seed);
    for (const std::size_t size : {0U, 1U, 2U, 10U, 1000U}) {
      std::vector<std::int64_t> values(size);
      std::iota(values.begin(), values.end(), 0);
      NumpyShuffler(seed).shuffle(std::span(values));
      REQUIRE(values == golden.integers("seed_" + name + "/n_" + std::to_string(size)));
    }
    NumpyShuffler chain(seed);
    std::vector<std::int64_t> chained;
    for (const std::int64_t size : golden.integers("chain_" + name + "/sizes")) {
      std::vector<std::int64_t> values(size);
      std::iota(values.begin(), values.end(), 0);
      chain.shuffle(std::span(values));
      chained.insert(chained.end(), values.begin(), values.end());
    }
    REQUIRE(chained == golden.integers("chain_" + name + "/values"));
  }
}

TEST_CASE("the sample order equals Megatron's, index by index") {
  const GoldenArrays golden("samples_" + GENERATE(from_range(kOrders)));
  CAPTURE(golden.name());
  const SampleOrder order(split_lengths(golden), options_of(golden));
  REQUIRE(order.epochs == golden.integer("epochs"));
  REQUIRE(order.last_epoch_is_separate == (golden.integer("separate_last_epoch") == 1));

  const std::vector<std::int64_t> documents = golden.integers("documents");
  std::vector<std::int64_t> document_index;
  for (std::size_t i = 0; i < order.sequences.size(); ++i) {
    document_index.push_back(documents.at(order.sequences[i]));
  }
  REQUIRE(document_index == golden.integers("document_index"));

  std::vector<std::int64_t> shuffle_index;
  for (std::size_t i = 0; i < order.num_samples(); ++i) {
    shuffle_index.push_back(static_cast<std::int64_t>(order.samples[i]));
  }
  REQUIRE(shuffle_index == golden.integers("shuffle_index"));

  const std::vector<std::int64_t> sample_index = golden.integers("sample_index");
  for (std::uint64_t j = 0; j <= order.num_samples(); ++j) {
    const SampleOrder::Place place = order.start_of(j);
    if (j > 0) {  // the very first place may be that of an empty document for Megatron
      REQUIRE(place.position == static_cast<std::size_t>(sample_index.at(2 * j)));
    }
    REQUIRE(place.offset == static_cast<std::uint64_t>(sample_index.at(2 * j + 1)));
  }
}

TEST_CASE("the samples equal Megatron's, token by token") {
  const GoldenArrays golden("samples_" + GENERATE(from_range(kOrders)));
  CAPTURE(golden.name());
  const SampleOrder order(split_lengths(golden), options_of(golden));
  const auto width = static_cast<std::ptrdiff_t>(golden.integer("sequence") + 1);
  const std::vector<std::int64_t> positions = golden.integers("token_positions");
  REQUIRE_FALSE(positions.empty());
  std::uint64_t index = 0;
  for (auto row = positions.begin(); row != positions.end(); row += width) {
    REQUIRE(token_positions(order, golden, index++) == std::vector<std::int64_t>(row, row + width));
  }
}

TEST_CASE("an epoch's samples cover every token but a rest, and neighbours share one") {
  const std::vector<std::uint32_t> lengths = {7, 1, 30, 2, 2, 19};
  const SampleOrder order(lengths, {.seed = 3, .sequence = 4, .samples = 15});
  REQUIRE(order.epochs == 1);
  REQUIRE(order.num_samples() == 15);
  std::set<std::pair<std::uint64_t, std::uint64_t>> tokens;
  for (const SampleOrder::Part& part : all_parts(order)) {
    for (std::uint64_t i = 0; i < part.count; ++i) {
      tokens.emplace(part.sequence, part.offset + i);
    }
  }
  REQUIRE(tokens.size() == 61);  // 15 x 4 + 1 of 61
}

TEST_CASE("later blocks and seeds beyond 32 bits shuffle by generators of their own") {
  const std::vector<std::uint32_t> lengths(200, 9);
  const auto shuffled = [&](std::uint64_t seed, std::uint64_t block) {
    const SampleOrder order(lengths, {.seed = seed, .sequence = 8, .samples = 220, .block = block});
    std::vector<std::uint64_t> samples;
    for (std::size_t i = 0; i < order.num_samples(); ++i) {
      samples.push_back(order.samples[i]);
    }
    return samples;
  };
  const std::uint64_t wide = (std::uint64_t{1} << 32U) + 7;
  const std::set<std::vector<std::uint64_t>> distinct = {
      shuffled(7, 0), shuffled(7, 1), shuffled(7, 2), shuffled(8, 1), shuffled(wide, 0)};
  REQUIRE(distinct.size() == 5);
  REQUIRE(shuffled(7, 1) == shuffled(7, 1));
}

TEST_CASE("indices beyond 32 bits are kept whole") {
  const std::uint64_t large = std::uint64_t{1} << 33U;
  IndexArray wide(3, large);
  IndexArray narrow(3, 5);
  for (std::uint64_t i = 0; i < 3; ++i) {
    wide.push_back(large - i);
    narrow.push_back(i);
  }
  REQUIRE(wide[0] == large);
  NumpyShuffler first(1);
  NumpyShuffler second(1);
  wide.shuffle(first, 0, 3);
  narrow.shuffle(second, 0, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(wide[i] == large - narrow[i]);
  }
}

}  // namespace slackline
