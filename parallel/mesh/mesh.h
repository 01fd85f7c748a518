#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh/parallel_config.h"

namespace slackline {

// The ranks of a run as a grid with named axes, the first axis varying fastest. Nothing else counts
// on how many axes there are.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
  };

  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }

  [[nodiscard]] int size() const;
  [[nodiscard]] int size(std::string_view axis) const;

  // Where a rank stands on an axis.
  [[nodiscard]] int coordinate(int rank, std::string_view axis) const;

  // The rank that stands where `rank` does, but at `coordinate` of an axis.
  [[nodiscard]] int moved(int rank, std::string_view axis, int coordinate) const;

  // The ranks that differ from `rank` on one axis only, in its order.
  [[nodiscard]] std::vector<int> line(int rank, std::string_view axis) const;

 private:
  [[nodiscard]] int stride(std::string_view axis) const;

  std::vector<Axis> axes_;
};

// tensor (fastest, inside a node) x data x pipeline.
[[nodiscard]] Mesh make_mesh(const ParallelConfig& config);

// One line per rank: its place on every axis and its node.
[[nodiscard]] std::string rank_map(const Mesh& mesh, const std::vector<int>& nodes);

}  // namespace slackline
