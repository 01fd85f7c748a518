#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "compress/codec_setting.h"
#include "core/comm/collective_bytes.h"
#include "parallel/mesh/reported_axes.h"
#include "parallel/plan/bucket_compression.h"
#include "parallel/plan/coded_gather.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// What a codec makes of a class's transfers on one rank: of a pipeline's message, or of a step's
// sum.
struct CodedMessage {
  CodecSetting codec{};
  std::vector<std::int64_t> shape{};  // as in CodecTimes
  bool is_added = false;              // by ranks; a boundary's is not
  bool is_cut = false;                // travels by rows, in exchanges: nothing is added on the way
  int frames = 1;                     // that a rank decodes, or as many rows as they have
  double encoded = 1.0;               // likewise, that it encodes
  int exchanges = 1;                  // one after the other, of messages that do not add
};

// Returns each codec's message of a sum, and a gather's frame of each segment.
[[nodiscard]] std::vector<CodedMessage> messages_of(const CodedBucket& coded);
[[nodiscard]] std::vector<CodedMessage> messages_of(const CodedGather& coded);

// A rank's part of an op under a plan.
struct OpTraffic {
  std::vector<CollectiveCall> calls{};  // one after another
  std::vector<CodedMessage> coded{};    // empty: they are plain, or carry frames of an op before
};

// Says what `plan` makes of an op of the rank's sync plan. The first gather of a use codes for all
// of that bucket's. REQUIRES: `op` stands in the sync plan.
[[nodiscard]] OpTraffic traffic_of(const SyncOp& op,
                                   const RankSync& rank,
                                   const CompressionPlan& plan);

// Payload bytes of a part of a step's lists (a class of the pipeline schedule's sends, an op of the
// sync plan, the layers' exchanges over tensor ranks), sent by all data ranks at one place of the
// mesh. What is a few numbers a step (norm, loss, agreement) is not counted.
struct SentBytes {
  std::size_t axis = 0;                              // of kReportedAxes
  std::optional<schedule::TransferClass> members{};  // none: it competes for no compression
  bool gradients = false;                            // a sum of them, which a codec may make less
  std::size_t raw = 0;                               // without compression
  std::size_t sent = 0;                              // under the plan, frames included
  std::size_t across = 0;                            // of `sent`, to other groups of data ranks
  std::vector<CodedMessage> coded{};                 // on one rank
};

// The rows of the sync plan of the ranks at `place` (whichever data rank it names).
[[nodiscard]] std::vector<SentBytes> sync_bytes(const MeshLists& lists,
                                                const CompressionPlan& plan,
                                                const MeshPlace& place);

// A row for each class of sends of the ranks at a pipeline place, one tensor rank's share of each.
[[nodiscard]] std::vector<SentBytes> pipeline_bytes(const MeshLists& lists,
                                                    const CompressionPlan& plan,
                                                    const MeshPlace& place);

// Bytes that ranks send on each of kReportedAxes.
using AxisBytes = std::array<std::size_t, kReportedAxes.size()>;

struct StepTraffic {
  struct Axes {
    AxisBytes raw{};     // without compression
    AxisBytes sent{};    // under a plan
    AxisBytes across{};  // of `sent`, to other groups of data ranks
  };

  Axes all{};                  // of all ranks of the job
  std::vector<Axes> places{};  // of all ranks at each place of the pipeline
};

// Counts what a step sends under the plan.
[[nodiscard]] StepTraffic step_traffic(const MeshLists& lists, const CompressionPlan& plan);

// Counts what compression keeps off each axis in a step, in the order of kReportedAxes; below 0
// where it sends more.
[[nodiscard]] std::vector<double> saved_axis_bytes(const MeshJob& job, const CompressionPlan& plan);

}  // namespace slackline
