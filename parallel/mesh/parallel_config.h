#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/comm/hierarchy.h"
#include "core/comm/links/network_config.h"
#include "core/json_reader.h"
#include "model/model_config.h"
#include "parallel/mesh/data_strategy.h"
#include "parallel/schedule/ops.h"

namespace slackline {

using ScheduleName = schedule::Kind;

enum class EmbeddingSync { fused, separate };

// The sizes from which on sums and gathers of one communicator go through groups of its ranks, in
// bytes of a tensor, as a Hierarchy has them.
struct GroupWays {
  std::size_t sequential_from = Hierarchy::kNever;
  std::size_t overlapped_from = Hierarchy::kNever;

  friend bool operator==(const GroupWays&, const GroupWays&) = default;
};

// The ways of the communicators that span several groups of data ranks.
struct CollectiveWays {
  GroupWays data{};   // of all data ranks at a place of the mesh
  GroupWays table{};  // of the holders of a tied table on two stages

  friend bool operator==(const CollectiveWays&, const CollectiveWays&) = default;
};

// The "parallel" section: degrees of the mesh axes and how the step runs over them.
struct ParallelConfig {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  int group = 0;  // data ranks that form a group; 0: all, one group
  ScheduleName schedule = ScheduleName::one_f_one_b;
  int chunks = 1;                   // of layers per pipeline rank: virtual stages
  std::vector<int> stage_layers{};  // per virtual stage; empty: balanced by cost
  bool sequence_parallel = false;
  DataStrategy data_strategy{};
  bool chooses_strategy = false;  // "auto": until a plan has decided
  bool groups_apart = false;      // groups are workers, which step by themselves (outer)
  // No key of the section: codecs may come to sit on sums of gradients, and send more the more
  // ranks add up (tools/plan/sum_codecs.h).
  bool codes_sums = false;
  schedule::Transfers transfers = schedule::Transfers::asynchronous;
  EmbeddingSync embedding_sync = EmbeddingSync::fused;
  // No key of the section: network.collectives as decided (parallel/predict/collective_ways.h).
  // None: not decided yet, all go directly.
  std::optional<CollectiveWays> ways{};

  [[nodiscard]] int num_ranks() const { return tensor * pipeline * data; }

  [[nodiscard]] int data_ranks_of_group() const { return group == 0 ? data : group; }

  [[nodiscard]] int num_groups() const { return data / data_ranks_of_group(); }

  // Whether data ranks add up the gradients of matrices in every pass, so that none is left to add
  // up at the step's end.
  [[nodiscard]] bool sums_in_passes() const {
    return data > 1 && (data_strategy.gradients == Extent::global ||
                        (data_strategy.gradients == Extent::group && num_groups() == 1));
  }

  // Whether a codec may sit on the sum of a tied table's gradients. The group's size is decided.
  [[nodiscard]] bool codes_table() const {
    return !sums_in_passes() && data_strategy.codes_table(pipeline);
  }

  [[nodiscard]] int num_virtual_stages() const { return pipeline * chunks; }

  // Workers: ranks that step together, each a whole tensor x pipeline x data mesh.
  [[nodiscard]] int num_workers() const { return groups_apart ? num_groups() : 1; }

  // The section of one worker's mesh, whose data ranks are those of the group: what is shared out
  // in the group or over all is shared out over them.
  [[nodiscard]] ParallelConfig of_worker() const;

  // Whether there is something to tell apart: several groups, of several data ranks each.
  [[nodiscard]] bool has_groups_of_ranks() const {
    return num_groups() > 1 && data_ranks_of_group() > 1;
  }

  // Whether sums of gradients over all data ranks are made in two steps, in each group and between
  // groups. A codec sits on the second, so what it makes crosses once for all ranks of a group.
  [[nodiscard]] bool sums_by_levels() const {
    return codes_sums && !groups_apart && has_groups_of_ranks();
  }

  // Whether the data axis has more to do than to add up each gradient over all ranks at once, and
  // to gather each weight.
  [[nodiscard]] bool has_steps() const { return data_strategy.has_steps() || sums_by_levels(); }

  // They say how the data axis goes through its groups, and a tied table that stands on two stages.
  [[nodiscard]] Hierarchy data_hierarchy() const;
  [[nodiscard]] Hierarchy table_hierarchy() const;
};

// Sequences of a step, as far as the mesh has to fit them.
struct BatchSplit {
  std::int64_t global = 0;
  std::int64_t micro = 0;
};

// Reads the section and checks it against the model.
[[nodiscard]] ParallelConfig read_parallel_config(JsonReader section, const ModelConfig& model);

// Gives groups their size where the config does not and needs it: the data ranks that stand on one
// node of `ranks_of_node` ranks with their whole pipelines. It is needed where the data strategy
// has groups or is to be chosen, where groups train apart, for CollectivesWish::hierarchical, and
// where codecs are to sit on sums that cross nodes and a node has several data ranks.
// CollectivesWish::automatic makes no groups of its own: they set the order of sums, which is not
// to depend on nodes unasked.
[[nodiscard]] ParallelConfig with_groups_of_nodes(ParallelConfig config,
                                                  CollectivesWish wish,
                                                  int ranks_of_node);

// Says what keeps micro-batches from fitting, in a ConfigError's words: rows over tensor ranks,
// rounds of an interleaved schedule. Empty where they fit.
// REQUIRES: global is a multiple of micro x data.
[[nodiscard]] std::string batch_obstacle(const ParallelConfig& config,
                                         const ModelConfig& model,
                                         BatchSplit batch);

// Throws ConfigError where there is one.
void check_batch_fits(const ParallelConfig& config, const ModelConfig& model, BatchSplit batch);

// Passes of a step over all stages, each of which a schedule lists.
constexpr std::int64_t kMostPasses = std::int64_t{1} << 20U;

// The micro-batches from which a run without one may choose, in sequences, the smallest first:
// powers of two and the whole share of a data rank, as far as they divide it, make at most
// kMostPasses passes and have no batch_obstacle(). REQUIRES: global is a multiple of data.
[[nodiscard]] std::vector<std::int64_t> micro_batch_choices(const ParallelConfig& config,
                                                            const ModelConfig& model,
                                                            std::int64_t global);

}  // namespace slackline
