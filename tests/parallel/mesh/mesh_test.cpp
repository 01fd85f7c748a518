#include "parallel/mesh/mesh.h"

#include <set>

#include "parallel/step/groups.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

Mesh small_mesh() {
  return Mesh({{"tensor", 2}, {"data", 3}, {"pipeline", 4}});
}

}  // namespace

TEST_CASE("the first axis of a mesh varies fastest") {
  const Mesh mesh = small_mesh();
  CHECK(mesh.size() == 24);
  CHECK(mesh.size("data") == 3);
  CHECK(mesh.coordinate(1, "tensor") == 1);
  CHECK(mesh.coordinate(1, "data") == 0);
  CHECK(mesh.coordinate(2, "data") == 1);
  CHECK(mesh.coordinate(23, "tensor") == 1);
  CHECK(mesh.coordinate(23, "data") == 2);
  CHECK(mesh.coordinate(23, "pipeline") == 3);
}

TEST_CASE("a rank moved on one axis keeps its place on the others") {
  const Mesh mesh = small_mesh();
  for (int rank = 0; rank < mesh.size(); ++rank) {
    for (const Mesh::Axis& axis : mesh.axes()) {
      for (int to = 0; to < axis.size; ++to) {
        const int moved = mesh.moved(rank, axis.name, to);
        for (const Mesh::Axis& other : mesh.axes()) {
          const int expected = other.name == axis.name ? to : mesh.coordinate(rank, other.name);
          CHECK(mesh.coordinate(moved, other.name) == expected);
        }
      }
    }
  }
}

TEST_CASE("the lines of an axis cover the mesh once") {
  const Mesh mesh = small_mesh();
  CHECK(mesh.line(3, "tensor") == std::vector<int>{2, 3});
  CHECK(mesh.line(3, "data") == std::vector<int>{1, 3, 5});
  CHECK(mesh.line(3, "pipeline") == std::vector<int>{3, 9, 15, 21});
  for (const Mesh::Axis& axis : mesh.axes()) {
    std::set<std::vector<int>> lines;
    std::size_t ranks = 0;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const auto [line, is_first] = lines.insert(mesh.line(rank, axis.name));
      ranks += is_first ? line->size() : 0;
      CHECK((*line)[static_cast<std::size_t>(mesh.coordinate(rank, axis.name))] == rank);
    }
    CHECK(ranks == static_cast<std::size_t>(mesh.size()));
  }
}

TEST_CASE("tensor ranks stand side by side and pipeline stages furthest apart") {
  const Mesh mesh = make_mesh({.tensor = 2, .pipeline = 4, .data = 3});
  CHECK(mesh.size() == 24);
  CHECK(mesh.line(0, "tensor") == std::vector<int>{0, 1});
  CHECK(mesh.line(0, "data") == std::vector<int>{0, 2, 4});
  CHECK(mesh.line(0, "pipeline") == std::vector<int>{0, 6, 12, 18});
}

TEST_CASE("the map of ranks has a line for each, with its node") {
  const Mesh mesh({{"tensor", 2}, {"data", 2}});
  CHECK(rank_map(mesh, {0, 0, 1, 1}) ==
        "rank  node    tensor      data\n"
        "   0     0         0         0\n"
        "   1     0         1         0\n"
        "   2     1         0         1\n"
        "   3     1         1         1\n");
}

}  // namespace slackline
