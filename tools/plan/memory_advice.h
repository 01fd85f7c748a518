#pragma once

#include <cstddef>
#include <string>

#include "tools/plan/plan_job.h"

namespace slackline {

// Tells a run that ran out of memory the first change of the config after which this rank's memory
// plan has at most `limit` bytes on `config.device`, out of smaller micro-batches, block
// recomputation, shared optimizer state and bf16, and each with smaller micro-batches. "hint: with
// --set batch.micro=2 ...", or that none of them is enough.
[[nodiscard]] std::string memory_advice(const PlanJob& job,
                                        const MeshPlace& place,
                                        int num_threads,
                                        std::size_t limit);

}  // namespace slackline
