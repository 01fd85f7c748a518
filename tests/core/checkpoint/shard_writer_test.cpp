#include "core/checkpoint/shard_writer.h"

#include <memory>
#include <numeric>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "tests/core/checkpoint/checkpoint_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

using Catch::Contains;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

constexpr std::int64_t kRows = 11;
constexpr std::int64_t kColumns = 6;

// Ranks that share a table by columns; rank 0 alone gives the bias that all have.
class Ranks {
 public:
  Ranks(const std::string& directory, int size, std::size_t keep = 2) : size_(size) {
    std::iota(table_.begin(), table_.end(), 0.0F);
    for (int rank = 0; rank < size; ++rank) {
      writers_.push_back(std::make_unique<ShardWriter>(
          ShardWriter::Options{.directory = directory, .rank = rank, .size = size, .keep = keep}));
    }
  }

  // The columns of `rank`, which has a copy of the whole table and saves a rectangle of it.
  CheckpointContents contents(std::int64_t step, int rank) {
    const std::int64_t begin = kColumns * rank / size_;
    const std::int64_t end = kColumns * (rank + 1) / size_;
    const Region part{{0, begin}, {kRows, end - begin}};
    const Shape shape{kRows, kColumns};
    CheckpointContents contents{
        .step = step,
        .documents = {.model = R"({"written_by":)" + std::to_string(rank) + "}"},
        .tensors = {{.name = "weights/table",
                     .data = Tensor(std::span(table_)),
                     .start = part.start,
                     .logical = shape,
                     .place = LocalPlace{shape, part}}}};
    if (rank == 0) {
      contents.tensors.push_back({.name = "adam_m/bias", .data = Tensor(std::span(bias_))});
      contents.files = {{"tokenizer.json", "{}"}};
    }
    return contents;
  }

  void begin(std::int64_t step) {
    for (int rank = 0; rank < size_; ++rank) {
      writer(rank).save(contents(step, rank));
    }
  }

  std::vector<ShardList> take() {
    std::vector<ShardList> lists;
    for (const auto& writer : writers_) {
      lists.push_back(writer->take());
    }
    return lists;
  }

  void save(std::int64_t step) {
    begin(step);
    writer(0).commit(take());
  }

  ShardWriter& writer(int rank) { return *writers_[static_cast<std::size_t>(rank)]; }

  std::vector<float>& table() { return table_; }

 private:
  int size_;
  std::vector<float> table_ = std::vector<float>(kRows * kColumns);
  std::vector<float> bias_ = std::vector<float>(5, 2.5F);
  std::vector<std::unique_ptr<ShardWriter>> writers_{};
};

std::vector<float> table_in(const std::string& path) {
  Checkpoint checkpoint(path);
  checkpoint.verify();
  std::vector<float> table(kRows * kColumns);
  checkpoint.read("weights/table", Tensor(table.data(), DType::f32, {kRows, kColumns}));
  return table;
}

std::string refusal(const std::string& path) {
  return testing::refusal_of<FileError>([&] { Checkpoint(path).verify(); });
}

}  // namespace

TEST_CASE("a checkpoint of many ranks is there only once it is committed, and then whole") {
  for (const int size : {1, 2, 5, 8}) {
    const TemporaryDirectory directory;
    Ranks ranks(directory.file("checkpoints"), size);
    REQUIRE_FALSE(fs::exists(directory.file("checkpoints")));
    const std::vector<float> before = ranks.table();
    ranks.begin(3);
    std::fill(ranks.table().begin(), ranks.table().end(), -1.0F);  // training goes on
    REQUIRE(ranks.writer(0).is_saving());
    const std::vector<ShardList> lists = ranks.take();
    REQUIRE(ranks.writer(0).finished());
    REQUIRE_FALSE(ranks.writer(0).is_saving());
    REQUIRE_FALSE(latest_checkpoint(directory.file("checkpoints")).has_value());
    ranks.writer(0).commit(lists);
    const std::string path = directory.file("checkpoints/step-00000003");
    REQUIRE(names_in(directory.file("checkpoints")) == Names{"step-00000003"});
    REQUIRE(table_in(path) == before);
    REQUIRE(Checkpoint(path).documents().model == R"({"written_by":0})");
    REQUIRE(Checkpoint(path).has_file("tokenizer.json"));
    REQUIRE(Checkpoint(path).has_file(size == 1 ? "weights-00000.safetensors"
                                                : "weights-00001-00000.safetensors"));
  }
}

TEST_CASE("a rank that could not write is named, nothing is committed, older checkpoints stay") {
  const TemporaryDirectory directory;
  Ranks ranks(directory.path(), 3, 1);
  ranks.save(1);
  const std::vector<float> before = ranks.table();
  // A directory stands where rank 2 writes.
  make_directories(directory.file(".step-00000002.partial/weights-00002-00000.safetensors/x"));
  std::fill(ranks.table().begin(), ranks.table().end(), -1.0F);
  ranks.begin(2);
  const std::vector<ShardList> lists = ranks.take();
  REQUIRE(lists[1].failure == ExitCode::done);
  REQUIRE(lists[2].failure == ExitCode::file);
  REQUIRE(fs::exists(directory.file(".step-00000002.partial/weights-00001-00000.safetensors")));
  REQUIRE_THROWS_WITH(ranks.writer(0).commit(lists),
                      Contains("step-00000002: not saved: rank 2: ") &&
                          Contains("weights-00002-00000.safetensors: cannot "));
  REQUIRE(names_in(directory.path()) == Names{"step-00000001"});
  REQUIRE(table_in(directory.file("step-00000001")) == before);
  ranks.save(3);  // the next one goes as usual
  REQUIRE(names_in(directory.path()) == Names{"step-00000003"});
}

TEST_CASE("a rank with a disk of its own is found before the commit") {
  const TemporaryDirectory shared;
  const TemporaryDirectory other;
  Ranks ranks(shared.path(), 2);
  Ranks elsewhere(other.path(), 2);
  ranks.begin(1);
  elsewhere.begin(1);
  std::vector<ShardList> lists = ranks.take();
  fs::remove(shared.file(".step-00000001.partial/weights-00001-00000.safetensors"));
  lists[1] = elsewhere.take()[1];
  REQUIRE_THROWS_WITH(ranks.writer(0).commit(lists),
                      Contains("weights-00001-00000.safetensors: rank 1 wrote") &&
                          Contains("rank 0 finds no such file\nhint: "));
  REQUIRE(names_in(shared.path()).empty());
}

TEST_CASE("an element given twice or by nobody is refused and nothing is committed") {
  const TemporaryDirectory directory;
  for (const int given_by_first : {1, 0}) {  // of two ranks, the columns that rank 0 gives
    Ranks ranks(directory.path(), 2);
    ranks.writer(0).save(ranks.contents(1, given_by_first));
    CheckpointContents second = ranks.contents(1, 0);
    second.tensors.resize(1);
    ranks.writer(1).save(second);
    std::vector<ShardList> lists = ranks.take();
    if (given_by_first == 1) {
      lists[1].tensors.clear();
      lists[1].files.clear();
    }
    REQUIRE_THROWS_WITH(ranks.writer(0).commit(lists),
                        Contains(given_by_first == 1 ? "must cover the tensor" : "overlap"));
    REQUIRE(names_in(directory.path()).empty());
  }
}

TEST_CASE("a missing, cut or damaged shard of one rank is refused by its name") {
  const TemporaryDirectory directory;
  Ranks ranks(directory.path(), 4);
  ranks.save(1);
  const std::string path = directory.file("step-00000001");
  const std::string shard = path + "/weights-00002-00000.safetensors";
  REQUIRE(refusal(path) == "accepted");
  flip_bit(shard, fs::file_size(shard) - 2);
  CHECK_THAT(refusal(path), Contains(shard + ": damaged"));
  fs::resize_file(shard, fs::file_size(shard) - 1);
  CHECK_THAT(refusal(path), Contains(shard + ": truncated"));
  fs::remove(shard);
  CHECK_THAT(refusal(path), Contains(shard) && Contains("no such file"));
}

TEST_CASE("the last k checkpoints of many ranks are kept, and only rank 0 removes debris") {
  const TemporaryDirectory directory;
  Ranks ranks(directory.path(), 2, 2);
  make_directories(directory.file(".step-00000009.partial"));
  ranks.writer(1).remove_debris();
  REQUIRE(names_in(directory.path()) == Names{".step-00000009.partial"});
  ranks.writer(0).remove_debris();
  REQUIRE(names_in(directory.path()).empty());
  for (const std::int64_t step : {1, 2, 3}) {
    ranks.save(step);
  }
  REQUIRE(names_in(directory.path()) == Names{"step-00000002", "step-00000003"});
  REQUIRE_THROWS_AS(ranks.writer(0).take(), Error);
}

}  // namespace slackline
