#include "core/checkpoint/shared_directory.h"

#include "core/error.h"
#include "core/file_io.h"
#include "tests/core/checkpoint/checkpoint_fixture.h"
#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("a probe is seen where it was written and nowhere else") {
  const TemporaryDirectory shared;
  const TemporaryDirectory other;
  const std::string directory = shared.file("runs/a");  // the parents are created
  const std::string probe = write_probe(directory);
  REQUIRE(sees_probe(directory, probe));
  REQUIRE_FALSE(sees_probe(other.path(), probe));
  REQUIRE_FALSE(sees_probe(other.file("absent"), probe));
  REQUIRE(write_probe(other.path()) != probe);
  remove_probe(directory, probe);
  REQUIRE_FALSE(sees_probe(directory, probe));
  REQUIRE(names_in(directory).empty());
}

TEST_CASE("a directory that a probe has made goes again, one with something in it stays") {
  const TemporaryDirectory parent;
  const std::string directory = parent.file("checkpoints");
  remove_probe(directory, write_probe(directory));
  remove_unused(directory);
  REQUIRE_FALSE(path_exists(directory));
  const std::string probe = write_probe(directory);
  remove_unused(directory);
  REQUIRE(sees_probe(directory, probe));
}

TEST_CASE("a probe of that name with another content is not the one") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file(".probe-0"), "older");
  REQUIRE_FALSE(sees_probe(directory.path(), ".probe-0"));
}

TEST_CASE("a directory that cannot be written fails the probe with its path") {
  REQUIRE_THROWS_WITH(write_probe("/proc/runs"), Catch::Contains("/proc/runs"));
}

}  // namespace slackline
