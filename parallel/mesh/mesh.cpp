#include "parallel/mesh/mesh.h"

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

int Mesh::size(std::string_view axis) const {
  for (const Axis& known : axes_) {
    if (known.name == axis) {
      return known.size;
    }
  }
  SL_CHECK(false, "no axis " + std::string(axis));
  return 0;
}

int Mesh::stride(std::string_view axis) const {
  int stride = 1;
  for (const Axis& known : axes_) {
    if (known.name == axis) {
      return stride;
    }
    stride *= known.size;
  }
  SL_CHECK(false, "no axis " + std::string(axis));
  return 0;
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  return rank / stride(axis) % size(axis);
}

int Mesh::moved(int rank, std::string_view axis, int coordinate) const {
  return rank + (coordinate - this->coordinate(rank, axis)) * stride(axis);
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
  return Mesh({{"tensor", config.tensor}, {"data", config.data}, {"pipeline", config.pipeline}});
}

std::string rank_map(const Mesh& mesh, const std::vector<int>& nodes) {
  std::string text = "rank  node";
  for (const Mesh::Axis& axis : mesh.axes()) {
    text += fmt::format("  {:>8}", axis.name);
  }
  text += "\n";
  for (int rank = 0; rank < mesh.size(); ++rank) {
    text += fmt::format("{:>4}  {:>4}", rank, nodes[static_cast<std::size_t>(rank)]);
    for (const Mesh::Axis& axis : mesh.axes()) {
      text += fmt::format("  {:>8}", mesh.coordinate(rank, axis.name));
    }
    text += "\n";
  }
  return text;
}

}  // namespace slackline
