#include "core/checkpoint/checkpoint_writer.h"

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_directory.h"
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

}  // namespace

TEST_CASE("constructing a writer creates nothing, and there is nothing to wait for") {
  const TemporaryDirectory directory;
  CheckpointWriter writer({.directory = directory.file("checkpoints")});
  writer.wait();
  REQUIRE_FALSE(fs::exists(directory.file("checkpoints")));
  REQUIRE_FALSE(latest_checkpoint(directory.file("checkpoints")).has_value());
}

TEST_CASE("what is saved is the state at the call, however training goes on") {
  const TemporaryDirectory directory;
  SmallState state;
  const std::vector<float> before = state.table;
  CheckpointWriter writer({.directory = directory.path()});
  CheckpointContents contents = state.contents(1);
  REQUIRE(staging_bytes(contents) == (60 + 7 + 7) * sizeof(float));
  // Enough to be still writing when save() returns.
  std::vector<float> large(8 << 20U, 1.0F);
  contents.tensors.push_back({"adam_v/large", Tensor(std::span(large))});
  writer.save(contents);
  std::fill(state.table.begin(), state.table.end(), -1.0F);
  std::fill(large.begin(), large.end(), -1.0F);
  writer.wait();
  REQUIRE(table_in(directory.file("step-00000001")) == before);
  Checkpoint checkpoint(directory.file("step-00000001"));
  std::vector<float> saved(large.size());
  checkpoint.read("adam_v/large", Tensor(std::span(saved)));
  REQUIRE(std::all_of(saved.begin(), saved.end(), [](float value) { return value == 1.0F; }));
}

TEST_CASE("the last k checkpoints are kept and the newest is found") {
  const TemporaryDirectory directory;
  SmallState state;
  CheckpointWriter writer({.directory = directory.path(), .keep = 2});
  for (const std::int64_t step : {5, 90, 100, 12345678, 123456789}) {
    writer.save(state.contents(step));
  }
  writer.wait();
  REQUIRE(names_in(directory.path()) == Names{"step-12345678", "step-123456789"});
  REQUIRE(latest_checkpoint(directory.path()) == directory.file("step-123456789"));
  REQUIRE(Checkpoint(directory.file("step-12345678")).step() == 12345678);
}

TEST_CASE("a full disk fails the save, leaves no debris and keeps what was saved before") {
  const TemporaryDirectory directory;
  SmallState state;
  const std::vector<float> before = state.table;
  CheckpointWriter writer({.directory = directory.path(), .keep = 1});
  writer.save(state.contents(1));
  writer.wait();
  std::vector<float> large(100'000);
  CheckpointContents contents = state.contents(2);
  contents.tensors.push_back({"weights/large", Tensor(std::span(large))});
  {
    const FileSizeLimit limit(100'000);
    writer.save(contents);
    REQUIRE_THROWS_AS(writer.wait(), FileError);
    writer.save(contents);
    // Found at the next save as well, where nobody waited.
    REQUIRE_THROWS_WITH(writer.save(contents),
                        Contains("weights-00000.safetensors: cannot write: File too large"));
  }
  REQUIRE(names_in(directory.path()) == Names{"step-00000001"});
  REQUIRE(table_in(directory.file("step-00000001")) == before);
  writer.save(contents);  // space was freed
  writer.wait();
  REQUIRE(names_in(directory.path()) == Names{"step-00000002"});
}

TEST_CASE("a directory that cannot be written fails the save with path and cause") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("file"), "x");
  SmallState state;
  CheckpointWriter writer({.directory = directory.file("file/checkpoints")});
  REQUIRE_THROWS_AS(
      [&] {
        writer.save(state.contents(1));
        writer.wait();
      }(),
      FileError);
  CheckpointWriter unwritable({.directory = "/proc/checkpoints"});
  unwritable.save(state.contents(1));
  REQUIRE_THROWS_WITH(unwritable.wait(), Contains("/proc/checkpoints"));
}

TEST_CASE("what a crash left behind is ignored, and removed by the next save") {
  const TemporaryDirectory directory;
  SmallState state;
  CheckpointWriter writer({.directory = directory.path()});
  writer.save(state.contents(1));
  writer.wait();
  // Died between the last file and the rename; died while an old one was removed; a cut-off copy.
  fs::copy(directory.file("step-00000001"), directory.file(".step-00000002.partial"));
  make_directories(directory.file(".step-00000000.partial"));
  make_directories(directory.file("step-00000009"));
  make_directories(directory.file("notes"));
  make_directories(directory.file("step-7"));
  REQUIRE(latest_checkpoint(directory.path()) == directory.file("step-00000001"));
  writer.save(state.contents(2));
  writer.wait();
  REQUIRE(names_in(directory.path()) ==
          Names{"notes", "step-00000001", "step-00000002", "step-00000009", "step-7"});
}

TEST_CASE("a step saved again replaces its checkpoint") {
  const TemporaryDirectory directory;
  SmallState first(1.0F);
  SmallState second(2.0F);
  CheckpointWriter writer({.directory = directory.path()});
  writer.save(first.contents(4));
  writer.save(second.contents(4));
  writer.wait();
  REQUIRE(names_in(directory.path()) == Names{"step-00000004"});
  REQUIRE(table_in(directory.file("step-00000004")) == second.table);
}

TEST_CASE("a checkpoint just saved is never removed as an old one") {
  const TemporaryDirectory directory;
  SmallState state;
  {
    CheckpointWriter writer({.directory = directory.path(), .keep = 1});
    writer.save(state.contents(9));
    writer.save(state.contents(3));  // a run that went back
  }
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
