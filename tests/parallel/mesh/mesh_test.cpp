#include "parallel/mesh/mesh.h"

#include <set>

#include "core/check.h"
#include "core/comm/world.h"
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

TEST_CASE("groups of data ranks are the outermost axis") {
  const ParallelConfig config{.tensor = 2, .pipeline = 2, .data = 6, .group = 3};
  const Mesh mesh = make_mesh(config);
  CHECK(mesh.size() == 24);
  CHECK(mesh.size("data") == 6);
  CHECK(mesh.size(kGroupAxis) == 3);
  CHECK(mesh.size(kAcrossGroupsAxis) == 2);
  int rank = 0;
  for (int group = 0; group < 2; ++group) {
    for (int stage = 0; stage < 2; ++stage) {
      for (int data = 0; data < 3; ++data) {
        for (int tensor = 0; tensor < 2; ++tensor, ++rank) {
          CHECK(rank == ((group * 2 + stage) * 3 + data) * 2 + tensor);
          CHECK(mesh.coordinate(rank, "tensor") == tensor);
          CHECK(mesh.coordinate(rank, kGroupAxis) == data);
          CHECK(mesh.coordinate(rank, "pipeline") == stage);
          CHECK(mesh.coordinate(rank, kAcrossGroupsAxis) == group);
          CHECK(mesh.coordinate(rank, "data") == group * 3 + data);
        }
      }
    }
  }
}

TEST_CASE("a line of data ranks goes through the groups in order") {
  const Mesh mesh = make_mesh({.tensor = 2, .pipeline = 2, .data = 6, .group = 3});
  CHECK(mesh.line(9, "data") == std::vector<int>{7, 9, 11, 19, 21, 23});
  CHECK(mesh.line(9, kGroupAxis) == std::vector<int>{7, 9, 11});
  CHECK(mesh.line(9, kAcrossGroupsAxis) == std::vector<int>{9, 21});
  CHECK(mesh.line(9, "pipeline") == std::vector<int>{3, 9});
  for (int rank = 0; rank < mesh.size(); ++rank) {
    for (int to = 0; to < 6; ++to) {
      const int moved = mesh.moved(rank, "data", to);
      CHECK(mesh.coordinate(moved, "data") == to);
      CHECK(mesh.coordinate(moved, "tensor") == mesh.coordinate(rank, "tensor"));
      CHECK(mesh.coordinate(moved, "pipeline") == mesh.coordinate(rank, "pipeline"));
    }
  }
}

TEST_CASE("one group numbers ranks as no group does") {
  const Mesh plain = make_mesh({.tensor = 2, .pipeline = 2, .data = 3});
  const Mesh one = make_mesh({.tensor = 2, .pipeline = 2, .data = 3, .group = 3});
  for (int rank = 0; rank < plain.size(); ++rank) {
    for (const char* axis : {"tensor", "data", "pipeline"}) {
      CHECK(one.line(rank, axis) == plain.line(rank, axis));
    }
  }
}

TEST_CASE("each rank has communicators of its group and across groups where there are several") {
  const ParallelConfig config{.tensor = 1, .pipeline = 2, .data = 4, .group = 2};
  run_local_ranks(8, {.timeout_seconds = 60.0}, [&](Communicator& world) {
    const int rank = world.rank();
    const Groups groups(world, config, true);
    const MeshPlace place = place_of(groups);
    const bool placed = place.data == rank / 4 * 2 + rank % 2 && place.pipeline == rank / 2 % 2;
    SL_CHECK(placed && groups.data->size() == 4, "place of rank " + std::to_string(rank));
    SL_CHECK(groups.group->size() == 2 && groups.group->rank() == rank % 2, "group");
    SL_CHECK(groups.across_groups->size() == 2 && groups.across_groups->rank() == rank / 4,
             "across groups");
    SL_CHECK(groups.table->rank() == 2 * place.data + place.pipeline, "table");
  });
  run_local_ranks(2, {.timeout_seconds = 60.0}, [&](Communicator& world) {
    const Groups groups(world, {.data = 2, .group = 2}, true);
    SL_CHECK(groups.group == nullptr && groups.across_groups == nullptr, "one group");
  });
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

TEST_CASE("the map of ranks shows groups where there are several") {
  CHECK(rank_map(make_mesh({.data = 4, .group = 2}), {0, 0, 1, 1}) ==
        "rank  node    tensor      data  pipeline     group\n"
        "   0     0         0         0         0         0\n"
        "   1     0         0         1         0         0\n"
        "   2     1         0         2         0         1\n"
        "   3     1         0         3         0         1\n");
  CHECK(rank_map(make_mesh({.data = 2, .group = 2}), {0, 0}) ==
        "rank  node    tensor      data  pipeline\n"
        "   0     0         0         0         0\n"
        "   1     0         0         1         0\n");
}

}  // namespace slackline
