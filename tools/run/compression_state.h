#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/contents.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_loop.h"

namespace slackline {

// What codecs and error feedback carry from step to step, in checkpoints.

// The pieces of it that this rank saves. Views. `outer` is null where all ranks step together, else
// settled.
[[nodiscard]] std::vector<CheckpointTensor> compression_tensors(MeshModel& model,
                                                                const OuterLoop* outer);

// Fills this rank's state from a checkpoint, and returns the names of what it took. State that has
// the same shape and as many workers is taken as it is. What other numbers of data ranks owed to
// sums of gradients is added up and shared out again, so that it stays owed. All else begins anew.
[[nodiscard]] std::vector<std::string> load_compression_state(Checkpoint& checkpoint,
                                                              MeshModel& model,
                                                              const OuterLoop* outer);

// The names of all compression state in a checkpoint. Those that no run can take, because an older
// checkpoint names a boundary's by the number of its stage, say so.
[[nodiscard]] std::vector<std::string> stored_compression_state(const Checkpoint& checkpoint);

// Tells on rank 0 which names of `stored` no rank has taken. All ranks call it.
void report_dropped_state(const std::vector<std::string>& stored,
                          const std::vector<std::string>& taken,
                          Communicator& world);

}  // namespace slackline
