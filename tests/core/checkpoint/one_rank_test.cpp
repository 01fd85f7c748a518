// The saves of a run of one rank: what is saved, when the disk is full, what is kept and replaced.

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_directory.h"
#include "core/checkpoint/shard_writer.h"
#include "core/checkpoint/staging.h"
#include "core/checkpoint/write_checkpoint.h"
#include "tests/core/checkpoint/checkpoint_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"

namespace slackline {

namespace {

using Catch::Contains;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::vector<float> table_in(const std::string& path) {
  Checkpoint checkpoint(path);
  checkpoint.verify();
  std::vector<float> table(60);
  checkpoint.read("weights/wte.weight", Tensor(table.data(), DType::f32, {12, 5}));
  return table;
}

class OneRank {
 public:
  explicit OneRank(const std::string& directory, std::size_t keep = 2)
      : writer_({.directory = directory, .keep = keep}) {}

  void begin(const CheckpointContents& contents) { writer_.save(contents); }

  void commit() {
    const ShardList list = writer_.take();
    writer_.commit({&list, 1});
  }

  void save(const CheckpointContents& contents) {
    begin(contents);
    commit();
  }

  void remove_debris() const { writer_.remove_debris(); }

 private:
  ShardWriter writer_;
};

}  // namespace

TEST_CASE("what is saved is the state at the call, however training goes on") {
  const TemporaryDirectory directory;
  SmallState state;
  const std::vector<float> before = state.table;
  OneRank rank(directory.path());
  CheckpointContents contents = state.contents(1);
  REQUIRE(staging_bytes(contents) == (60 + 7 + 7) * sizeof(float));
  // Enough to be still writing when save() returns.
  std::vector<float> large(8 << 20U, 1.0F);
  contents.tensors.push_back({"adam_v/large", Tensor(std::span(large))});
  rank.begin(contents);
  std::fill(state.table.begin(), state.table.end(), -1.0F);
  std::fill(large.begin(), large.end(), -1.0F);
  rank.commit();
  REQUIRE(table_in(directory.file("step-00000001")) == before);
  Checkpoint checkpoint(directory.file("step-00000001"));
  std::vector<float> saved(large.size());
  checkpoint.read("adam_v/large", Tensor(std::span(saved)));
  REQUIRE(std::all_of(saved.begin(), saved.end(), [](float value) { return value == 1.0F; }));
}

TEST_CASE("the last k checkpoints are kept and the newest is found") {
  const TemporaryDirectory directory;
  SmallState state;
  OneRank rank(directory.path(), 2);
  for (const std::int64_t step : {5, 90, 100, 12345678, 123456789}) {
    rank.save(state.contents(step));
  }
  REQUIRE(names_in(directory.path()) == Names{"step-12345678", "step-123456789"});
  REQUIRE(latest_checkpoint(directory.path()) == directory.file("step-123456789"));
  REQUIRE(Checkpoint(directory.file("step-12345678")).step() == 12345678);
}

TEST_CASE("a full disk fails the save, leaves no debris and keeps what was saved before") {
  const TemporaryDirectory directory;
  SmallState state;
  const std::vector<float> before = state.table;
  OneRank rank(directory.path(), 1);
  rank.save(state.contents(1));
  std::vector<float> large(100'000);
  CheckpointContents contents = state.contents(2);
  contents.tensors.push_back({"weights/large", Tensor(std::span(large))});
  {
    const FileSizeLimit limit(100'000);
    REQUIRE_THROWS_AS(rank.save(contents), FileError);
    REQUIRE_THROWS_WITH(rank.save(contents),
                        Contains("weights-00000.safetensors: cannot write: File too large"));
  }
  REQUIRE(names_in(directory.path()) == Names{"step-00000001"});
  REQUIRE(table_in(directory.file("step-00000001")) == before);
  rank.save(contents);  // space was freed
  REQUIRE(names_in(directory.path()) == Names{"step-00000002"});
}

TEST_CASE("a directory that cannot be written fails the save with path and cause") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("file"), "x");
  SmallState state;
  OneRank rank(directory.file("file/checkpoints"));
  REQUIRE_THROWS_AS(rank.save(state.contents(1)), FileError);
  OneRank unwritable("/proc/checkpoints");
  REQUIRE_THROWS_WITH(unwritable.save(state.contents(1)), Contains("/proc/checkpoints"));
}

TEST_CASE("what a crash left behind is ignored, and removed before the next save") {
  const TemporaryDirectory directory;
  SmallState state;
  OneRank rank(directory.path());
  rank.save(state.contents(1));
  // Died between the last file and the rename; died while an old one was removed; a cut-off copy.
  fs::copy(directory.file("step-00000001"), directory.file(".step-00000002.partial"));
  make_directories(directory.file(".step-00000000.partial"));
  make_directories(directory.file("step-00000009"));
  make_directories(directory.file("notes"));
  make_directories(directory.file("step-7"));
  REQUIRE(latest_checkpoint(directory.path()) == directory.file("step-00000001"));
  rank.remove_debris();
  rank.save(state.contents(2));
  REQUIRE(names_in(directory.path()) ==
          Names{"notes", "step-00000001", "step-00000002", "step-00000009", "step-7"});
}

TEST_CASE("a step saved again replaces its checkpoint") {
  const TemporaryDirectory directory;
  SmallState first(1.0F);
  SmallState second(2.0F);
  OneRank rank(directory.path());
  rank.save(first.contents(4));
  rank.save(second.contents(4));
  REQUIRE(names_in(directory.path()) == Names{"step-00000004"});
  REQUIRE(table_in(directory.file("step-00000004")) == second.table);
}

TEST_CASE("a checkpoint just saved is never removed as an old one") {
  const TemporaryDirectory directory;
  SmallState state;
  OneRank rank(directory.path(), 1);
  rank.save(state.contents(9));
  rank.save(state.contents(3));  // a run that went back
  REQUIRE(names_in(directory.path()) == Names{"step-00000003", "step-00000009"});
}

TEST_CASE("what is not a checkpoint is never replaced") {
  const TemporaryDirectory directory;
  make_directories(directory.file("a"));
  write_file_atomically(directory.file("a/mine"), "x");
  SmallState state;
  REQUIRE_THROWS_WITH(write_checkpoint(directory.file("a"), state.contents(1)),
                      Contains("is not a checkpoint"));
  REQUIRE(names_in(directory.path()) == Names{"a"});
  REQUIRE(read_file(directory.file("a/mine")) == "x");
}

TEST_CASE("pieces that do not make a tensor are our bug and leave nothing behind") {
  const TemporaryDirectory directory;
  SmallState state;
  CheckpointContents contents = state.contents(1);
  contents.tensors[0].logical = Shape{13, 5};
  contents.tensors[0].start = {0, 0};
  REQUIRE_THROWS_AS(write_checkpoint(directory.file("a"), contents), Error);
  REQUIRE(names_in(directory.path()).empty());
}

}  // namespace slackline
