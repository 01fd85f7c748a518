#include "parallel/mesh/mesh.h"

#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace slackline {

int Mesh::size() const {
  int ranks = 1;
  for (const Axis& axis : axes_) {
    ranks *= axis.size;
  }
  return ranks;
}

std::vector<Mesh::Part> Mesh::parts_of(std::string_view axis) const {
  std::vector<Part> parts;
  int stride = 1;
  int weight = 1;
  for (const Axis& known : axes_) {
    if (known.name == axis || known.part_of == axis) {
      parts.push_back({.size = known.size, .stride = stride, .weight = weight});
      weight *= known.size;
    }
    stride *= known.size;
  }
  SL_CHECK(!parts.empty(), "no axis " + std::string(axis));
  return parts;
}

int Mesh::size(std::string_view axis) const {
  const Part last = parts_of(axis).back();
  return last.weight * last.size;
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  int coordinate = 0;
  for (const Part& part : parts_of(axis)) {
    coordinate += rank / part.stride % part.size * part.weight;
  }
  return coordinate;
}

int Mesh::moved(int rank, std::string_view axis, int coordinate) const {
  int moved = rank;
  for (const Part& part : parts_of(axis)) {
    const int from = rank / part.stride % part.size;
    const int to = coordinate / part.weight % part.size;
    moved += (to - from) * part.stride;
  }
  return moved;
}

std::vector<int> Mesh::line(int rank, std::string_view axis) const {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(size(axis)));
  for (int i = 0; i < size(axis); ++i) {
    ranks.push_back(moved(rank, axis, i));
  }
  return ranks;
}

Mesh make_mesh(const ParallelConfig& config) {
  if (config.num_groups() == 1) {
    return Mesh({{"tensor", config.tensor}, {"data", config.data}, {"pipeline", config.pipeline}});
  }
  return Mesh({{"tensor", config.tensor},
               {kGroupAxis, config.data_ranks_of_group(), "data"},
               {"pipeline", config.pipeline},
               {kAcrossGroupsAxis, config.num_groups(), "data"}});
}

std::vector<std::vector<int>> lines_at(const Mesh& mesh, std::string_view axis, int place) {
  std::vector<std::vector<int>> lines;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const bool counts = place == kEveryPlace || mesh.coordinate(rank, "pipeline") == place;
    if (counts && mesh.coordinate(rank, axis) == 0) {
      lines.push_back(mesh.line(rank, axis));
    }
  }
  return lines;
}

std::vector<int> ends_of_pipeline(const Mesh& mesh, int rank) {
  const std::vector<int> line = mesh.line(rank, "pipeline");
  return {line.front(), line.back()};
}

std::vector<int> table_holders(const Mesh& mesh, int rank) {
  std::vector<int> holders;
  for (const int replica : mesh.line(rank, "data")) {
    const std::vector<int> ends = ends_of_pipeline(mesh, replica);
    holders.insert(holders.end(), ends.begin(), ends.end());
  }
  return holders;
}

std::string rank_map(const Mesh& mesh, const std::vector<int>& nodes) {
  // Titles of columns, and the axes whose coordinates they hold.
  std::vector<std::pair<std::string, std::string>> columns;
  for (const Mesh::Axis& axis : mesh.axes()) {
    if (axis.name == kAcrossGroupsAxis) {
      columns.emplace_back("group", axis.name);
    } else {
      const std::string& whole = axis.part_of.empty() ? axis.name : axis.part_of;
      columns.emplace_back(whole, whole);
    }
  }
  std::string text = "rank  node";
  for (const auto& [title, axis] : columns) {
    text += fmt::format("  {:>8}", title);
  }
  text += "\n";
  for (int rank = 0; rank < mesh.size(); ++rank) {
    text += fmt::format("{:>4}  {:>4}", rank, nodes[static_cast<std::size_t>(rank)]);
    for (const auto& [title, axis] : columns) {
      text += fmt::format("  {:>8}", mesh.coordinate(rank, axis));
    }
    text += "\n";
  }
  return text;
}

}  // namespace slackline
