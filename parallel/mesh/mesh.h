#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh/parallel_config.h"

namespace slackline {

// The ranks of a run as a grid with named axes, the first axis varying fastest. Axes that are parts
// of another one make it up: its coordinate counts all places of its first part, then those at the
// next place of its second part, and so on. Nothing else counts on how many axes there are.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
    std::string part_of{};  // the axis that this one makes up with others; empty: none
  };

  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }

  [[nodiscard]] int size() const;
  [[nodiscard]] int size(std::string_view axis) const;

  // Where a rank stands on an axis. An `axis`, here and below, may be one that others make up.
  [[nodiscard]] int coordinate(int rank, std::string_view axis) const;

  // The rank that stands where `rank` does, but at `coordinate` of an axis.
  [[nodiscard]] int moved(int rank, std::string_view axis, int coordinate) const;

  // The ranks that differ from `rank` on one axis only, in its order.
  [[nodiscard]] std::vector<int> line(int rank, std::string_view axis) const;

 private:
  // An axis of the grid among those that make up one that is asked for.
  struct Part {
    int size = 1;
    int stride = 1;  // ranks from one place to the next
    int weight = 1;  // places of the whole axis from one place to the next
  };

  [[nodiscard]] std::vector<Part> parts_of(std::string_view axis) const;

  std::vector<Axis> axes_;
};

inline constexpr const char* kGroupAxis = "group";
inline constexpr const char* kAcrossGroupsAxis = "across_groups";

// tensor (fastest, inside a node) x data x pipeline. With several groups of data ranks the data
// axis has two parts, one inside a group and one across groups, which is the outermost axis:
// tensor x group x pipeline x across_groups. A data rank is then group x data ranks of a group +
// data rank in the group.
[[nodiscard]] Mesh make_mesh(const ParallelConfig& config);

// In place of one place of the pipeline: all of them.
inline constexpr int kEveryPlace = -1;

// Lists the lines of an axis that begin at a place of the pipeline.
[[nodiscard]] std::vector<std::vector<int>> lines_at(const Mesh& mesh,
                                                     std::string_view axis,
                                                     int place);

// The first and the last rank of the pipeline of `rank`.
[[nodiscard]] std::vector<int> ends_of_pipeline(const Mesh& mesh, int rank);

// The holders of a tied table: the ends of the pipelines of `rank` and its data ranks, in their
// order.
[[nodiscard]] std::vector<int> table_holders(const Mesh& mesh, int rank);

// One line per rank: its node, its place on every axis, and its group where there are several.
[[nodiscard]] std::string rank_map(const Mesh& mesh, const std::vector<int>& nodes);

}  // namespace slackline
