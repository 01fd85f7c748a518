#pragma once

#include <string>
#include <vector>

#include "compress/compress_config.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/compression_plan.h"

namespace slackline {

// The classes of transfers that a codec may be given to: pipeline messages by sending virtual
// stage and phase, gradients by virtual stage, the tied table's by the first stage. Weights that
// are gathered after an update are not among them.
[[nodiscard]] std::vector<schedule::TransferClass> compressible_classes(const MeshJob& job);

// Weights that passes gather, by the virtual stage that reads them; a codec is only given to them
// by name. None where every rank has them all.
[[nodiscard]] std::vector<schedule::TransferClass> gather_classes(const MeshJob& job);

// The classes that the plans of a config have: compressible ones, and behind them weights that
// passes gather, where it names a codec for them.
[[nodiscard]] std::vector<schedule::TransferClass> planned_classes(const CompressConfig& config,
                                                                   const MeshJob& job);

// Says what keeps a codec from the messages of a site in this layout; nothing where it fits them.
[[nodiscard]] std::string misfit_of(const std::string& site,
                                    const CodecSetting& setting,
                                    const MeshJob& job);

// Returns the config without the settings of sites that the layout lacks.
[[nodiscard]] CompressConfig without_lacking_sites(CompressConfig config, const MeshJob& job);

// What a policy makes of a run, warm-up steps included; of critical_path, what is in force until it
// has chosen. Throws ConfigError for a site or a listed class that the layout lacks. REQUIRES: the
// policy does not read files.
[[nodiscard]] PlanHistory make_compression_plans(const CompressConfig& config, const MeshJob& job);

// Puts plans behind plain steps. Plans that begin with as many stay as they are.
[[nodiscard]] PlanHistory after_warmup(PlanHistory plans, int warmup_steps);

}  // namespace slackline
