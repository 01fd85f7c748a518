#pragma once

#include <cstddef>
#include <string>

#include "compress/compress_config.h"
#include "core/comm/links/network_config.h"
#include "optim/outer_config.h"
#include "parallel/mesh/rank_plan.h"

namespace slackline {

// What planning a run depends on. A value.
struct PlanJob {
  MeshJob mesh{};
  CompressConfig compress{};
  NetworkConfig network{};
  OuterConfig outer{};  // of workers, each of which has such a mesh
  int num_workers = 1;
  std::string rehearsal_costs{};     // of the rehearsal device: a cost file; empty: assumed
  std::size_t token_file_bytes = 0;  // that every process maps
  // True where state of codecs is kept beside them: over steps that may be skipped, and
  // evaluations.
  bool keeps_codec_state = false;
  // Whether "auto" takes a micro-batch as well; the mesh's is the smallest then.
  bool chooses_micro_batch = false;
  bool cuda_graphs = false;  // which take no strategy whose weights or gradients come with passes
};

}  // namespace slackline
