#include "data/dataset.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/megatron_writer.h"
#include "data/prepare.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

// Sequences of tokens counting up from `first`, so that a token tells its place.
void write_counting(const std::string& prefix, TokenId first, const std::vector<int>& lengths) {
  MegatronWriter writer(prefix, 60000);
  for (const int length : lengths) {
    std::vector<TokenId> tokens(length);
    for (TokenId& token : tokens) {
      token = first++;
    }
    writer.append(tokens);
    writer.end_sequence();
    writer.end_document();
  }
  writer.commit_tokens();
  writer.commit_index();
}

using Samples = std::vector<std::vector<TokenId>>;

Samples read_samples(const Dataset& data, std::uint64_t count, std::size_t sequence) {
  Samples samples(count, std::vector<TokenId>(sequence + 1));
  for (std::uint64_t i = 0; i < count; ++i) {
    data.sample(i, samples[i]);
  }
  return samples;
}

constexpr std::int64_t kSequence = 8;

// Two files: 20 sequences of 10 tokens from 0 on, and 30 of 7 from 10000 on.
class TwoFiles {
 public:
  TwoFiles() {
    write_counting(directory_.file("a"), 0, std::vector<int>(20, 10));
    write_counting(directory_.file("b"), 10000, std::vector<int>(30, 7));
  }

  [[nodiscard]] DataConfig config() const {
    return {.train = {{.path = directory_.file("a"), .weight = 3.0},
                      {.path = directory_.file("b"), .weight = 1.0}},
            .split = {0.95, 0.05, 0.0}};
  }

  [[nodiscard]] DataMembers open() const { return open_data(config(), 60000, kSequence); }

  [[nodiscard]] const TemporaryDirectory& directory() const { return directory_; }

 private:
  TemporaryDirectory directory_;
};

Dataset train_set(const TwoFiles& files,
                  std::uint64_t samples,
                  std::vector<MemberOrder> stored = {}) {
  return {files.open().train,
          {.seed = 5, .sequence = kSequence, .samples = samples, .stored = std::move(stored)}};
}

}  // namespace

TEST_CASE("a blend reads each file by its weight, training and validation apart") {
  const TwoFiles files;
  const DataMembers members = files.open();
  REQUIRE(members.train.size() == 2);
  REQUIRE(members.train[0].num_sequences == 19);
  REQUIRE(members.valid[0].first_sequence == 19);
  REQUIRE(members.valid[1].num_sequences == 2);  // 28.5 rounds to the even 28
  REQUIRE_FALSE(members.tokenizer.has_value());

  const Dataset train = train_set(files, 400);
  int from_first = 0;
  for (const std::vector<TokenId>& sample : read_samples(train, 400, kSequence)) {
    from_first += sample[0] < 10000 ? 1 : 0;
    for (const TokenId token : sample) {
      REQUIRE((token < 190 || (token >= 10000 && token < 10000 + 28 * 7)));
    }
  }
  REQUIRE(from_first == 300);
  const Dataset valid(members.valid, {.seed = 5, .sequence = kSequence, .samples = 20});
  for (const std::vector<TokenId>& sample : read_samples(valid, 20, kSequence)) {
    for (const TokenId token : sample) {
      REQUIRE(((token >= 190 && token < 200) || token >= 10000 + 28 * 7));
    }
  }
}

TEST_CASE("a weight that is nothing beside the others is refused") {
  const TwoFiles files;
  for (const auto& [first, second] : {std::pair{1e-300, 1e100}, {1e308, 1e308}}) {
    DataConfig config = files.config();
    config.train[0].weight = first;
    config.train[1].weight = second;
    const DataMembers members = open_data(config, 60000, kSequence);
    REQUIRE_THROWS_AS(Dataset(members.train, {.sequence = kSequence, .samples = 10}), ConfigError);
  }
}

TEST_CASE("without weights each file counts by the samples of one epoch of its training part") {
  const TwoFiles files;
  DataConfig config = files.config();
  config.train[0].weight.reset();
  config.train[1].weight.reset();
  const DataMembers members = open_data(config, 60000, kSequence);
  REQUIRE(members.train[0].weight == 23.0);  // (190 - 1) / 8
  REQUIRE(members.train[1].weight == 24.0);  // (196 - 1) / 8
  REQUIRE(members.valid[0].weight == 23.0);  // as in training
  const Dataset epoch(members.train, {.seed = 5, .sequence = kSequence, .samples = 47});
  int from_first = 0;
  for (const std::vector<TokenId>& sample : read_samples(epoch, 47, kSequence)) {
    from_first += sample[0] < 10000 ? 1 : 0;
  }
  REQUIRE(from_first == 23);

  config.valid = {{.path = config.train[1].path}, {.path = config.train[0].path}};
  config.split = kWholeFiles;
  const DataMembers whole = open_data(config, 60000, kSequence);
  REQUIRE(whole.train[0].weight == 24.0);  // (200 - 1) / 8
  REQUIRE(whole.valid[0].weight == 26.0);  // (210 - 1) / 8
  REQUIRE(whole.valid[1].weight == 24.0);
}

TEST_CASE("samples depend on the seed and the index alone") {
  const TwoFiles files;
  const Dataset first = train_set(files, 50);
  const Dataset second = train_set(files, 50);
  REQUIRE(read_samples(first, 50, kSequence) == read_samples(second, 50, kSequence));
  const Dataset other(files.open().train, {.seed = 6, .sequence = kSequence, .samples = 50});
  REQUIRE(read_samples(first, 50, kSequence) != read_samples(other, 50, kSequence));
}

TEST_CASE("a longer run keeps the order it had and appends a block that it can restore") {
  const TwoFiles files;
  const Dataset shorter = train_set(files, 50);
  const std::vector<MemberOrder> stored = shorter.order_state();
  REQUIRE(stored.size() == 2);
  REQUIRE(stored[0] == MemberOrder{190, 2, 39});  // 38 of 50 samples and some more: two epochs

  const Dataset same = train_set(files, 40, stored);
  REQUIRE(same.order_state() == stored);
  const Dataset longer = train_set(files, 300, stored);
  REQUIRE(longer.order_state()[0].size() == 5);
  const Samples samples = read_samples(longer, 300, kSequence);
  const Samples before = read_samples(shorter, 50, kSequence);
  REQUIRE(std::equal(before.begin(), before.end(), samples.begin()));

  const Dataset again = train_set(files, 300, longer.order_state());
  REQUIRE(again.order_state() == longer.order_state());
  REQUIRE(read_samples(again, 300, kSequence) == samples);
  // A run built for 300 from the start mixes its epochs: another order, so the state matters.
  REQUIRE(read_samples(train_set(files, 300), 300, kSequence) != samples);
}

TEST_CASE("a stored order of other data is refused") {
  const TwoFiles files;
  const std::vector<MemberOrder> stored = train_set(files, 50).order_state();
  REQUIRE_THROWS_AS(train_set(files, 50, {stored[0]}), ConfigError);
  REQUIRE_THROWS_WITH(train_set(files, 50, {stored[1], stored[0]}), Catch::Contains("other data"));
  REQUIRE_THROWS_AS(train_set(files, 50, {{}, {}}), ConfigError);
  REQUIRE_THROWS_AS(train_set(files, 50, {{190, 2, -1}, stored[1]}), FileError);
  REQUIRE_THROWS_AS(train_set(files, 50, {{190, 9, 39}, stored[1]}), ConfigError);
}

TEST_CASE("a stored order goes on with the same tokens in the same sequences alone") {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& name, const DatasetOptions& stored = {}) {
    DatasetOptions options = stored;
    options.seed = 5;
    options.sequence = kSequence;
    options.samples = 50;
    return Dataset(open_data({.train = {{.path = directory.file(name)}}}, 60000, kSequence).train,
                   options);
  };
  std::vector<int> cut(19, 10);
  cut.insert(cut.end(), {4, 6});
  write_counting(directory.file("first"), 0, std::vector<int>(20, 10));
  write_counting(directory.file("moved"), 0, std::vector<int>(20, 10));
  write_counting(directory.file("other"), 1, std::vector<int>(20, 10));
  write_counting(directory.file("cut"), 0, cut);
  const Dataset first = open("first");
  const DatasetOptions stored{.stored = first.order_state(), .stored_contents = first.contents()};
  REQUIRE_THAT(first.contents().at(0), Catch::StartsWith("20 sequences with hash "));

  REQUIRE(read_samples(open("moved", stored), 50, kSequence) == read_samples(first, 50, kSequence));
  REQUIRE_THROWS_AS(open("other", stored), ConfigError);
  REQUIRE_THROWS_WITH(
      open("other", stored),
      Catch::Contains("other data: the training split of " + directory.file("other.bin") +
                      " has as many tokens, 200, but other ones"));
  REQUIRE_THROWS_WITH(open("cut", stored), Catch::Contains("got 21 sequences with hash"));
  REQUIRE_NOTHROW(open("other", {.stored = first.order_state()}));  // of an older checkpoint
}

TEST_CASE("contents of a large file are known by its first and last tokens too") {
  const TemporaryDirectory directory;
  const auto contents = [&](const std::string& name, std::size_t changed, TokenId by) {
    std::vector<TokenId> tokens((std::size_t{1} << 20U) + 12345);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<TokenId>(i % 50000);
    }
    tokens[std::min(changed, tokens.size() - 1)] += by;
    MegatronWriter writer(directory.file(name), 60000);
    writer.append(tokens);
    writer.end_sequence();
    writer.end_document();
    writer.commit_tokens();
    writer.commit_index();
    const std::vector<std::uint32_t> lengths = {static_cast<std::uint32_t>(tokens.size())};
    return contents_of(
        open_data({.train = {{.path = directory.file(name)}}}, 60000, kSequence).train.at(0),
        lengths);
  };
  const std::string same = contents("same", 0, 0);
  REQUIRE(contents("copy", 0, 0) == same);
  REQUIRE(contents("first", 0, 1) != same);
  REQUIRE(contents("last", SIZE_MAX, 1) != same);
}

TEST_CASE("a stored order without end is refused before it is built") {
  const TwoFiles files;
  const std::vector<MemberOrder> stored = train_set(files, 50).order_state();
  MemberOrder many = {190};
  for (int block = 0; block <= 4096; ++block) {
    many.insert(many.end(), {1, 1});
  }
  REQUIRE_THROWS_WITH(train_set(files, 50, {many, stored[1]}), Catch::Contains("order is broken"));
}

TEST_CASE("with validation files the training files are used whole") {
  const TwoFiles files;
  DataConfig config = files.config();
  config.valid = {config.train.back()};
  config.train.pop_back();
  config.split = kWholeFiles;
  const DataMembers members = open_data(config, 60000, kSequence);
  REQUIRE(members.train.at(0).num_sequences == 20);
  REQUIRE(members.valid.at(0).num_sequences == 30);

  config.split = {0.5, 0.5, 0.0};  // of a run that began without validation files
  const DataMembers kept = open_data(config, 60000, kSequence);
  REQUIRE(kept.train.at(0).num_sequences == 10);
  REQUIRE(kept.valid.size() == 1);
  REQUIRE(kept.valid.at(0).num_sequences == 30);

  config.split = kWholeFiles;
  config.valid.clear();
  REQUIRE(open_data(config, 60000, kSequence).valid.empty());
}

TEST_CASE("a split that is too short is refused by what to change") {
  const TwoFiles files;
  DataMembers members = files.open();
  REQUIRE_THROWS_AS(Dataset(members.valid, {.sequence = 10, .samples = 1}), FileError);
  REQUIRE_THROWS_WITH(
      Dataset(members.valid, {.sequence = 10, .samples = 1}),
      Catch::StartsWith(files.directory().file("a.bin")) && Catch::Contains("validation split") &&
          Catch::Contains("+ 1 = 11 tokens") && Catch::Contains("1 of its 20 sequences have 10"));
  REQUIRE_NOTHROW(Dataset(members.valid, {.sequence = 9, .samples = 1}));
  for (DataMember& member : members.valid) {
    member.weight = 0.0;  // as where none is given, for it has no sample
  }
  REQUIRE_THROWS_WITH(Dataset(members.valid, {.sequence = 10, .samples = 1}),
                      Catch::Contains("its validation split is too short"));
  REQUIRE_THROWS_AS(open_data(files.config(), 10000, kSequence),
                    FileError);  // tokens beyond the vocabulary
}

TEST_CASE("empty sequences whose order would be larger than what is trained on are refused") {
  const TemporaryDirectory directory;
  std::vector<int> lengths(5000, 0);
  lengths.front() = 9;
  write_counting(directory.file("gaps"), 0, lengths);
  const DataConfig config{.train = {{.path = directory.file("gaps")}}, .split = {1.0, 0.0, 0.0}};
  const DataMembers members = open_data(config, 60000, kSequence);
  REQUIRE_NOTHROW(Dataset(members.train, {.sequence = kSequence, .samples = 500}));
  REQUIRE_THROWS_AS(Dataset(members.train, {.sequence = kSequence, .samples = 1000}), FileError);
  REQUIRE_THROWS_WITH(Dataset(members.train, {.sequence = kSequence, .samples = 1000}),
                      Catch::StartsWith(directory.file("gaps.bin")) &&
                          Catch::Contains("4999 of 5000 sequences of the training split"));
}

TEST_CASE("the tokenizer comes with the data, and two of them do not mix") {
  const TemporaryDirectory directory;
  std::ofstream(directory.file("text.txt")) << "some text for two tokenizers";
  prepare({.inputs = {directory.file("text.txt")}, .out = directory.file("bytes")});
  prepare({.inputs = {directory.file("text.txt")},
           .tokenizer = std::string("gpt2:") + SL_SOURCE_DIR "/tests/golden/bpe",
           .out = directory.file("words")});
  const DataConfig one{.train = {{.path = directory.file("bytes")}}};
  REQUIRE(open_data(one, 300, kSequence).tokenizer->json ==
          read_file(directory.file("bytes.tokenizer.json")));
  const DataConfig both{
      .train = {{.path = directory.file("bytes")}, {.path = directory.file("words")}}};
  REQUIRE_THROWS_WITH(open_data(both, 2000, kSequence), Catch::Contains("another tokenizer"));
}

}  // namespace slackline
