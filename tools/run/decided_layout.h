#pragma once

#include "core/comm/communicator.h"
#include "core/comm/device/device_transport.h"
#include "parallel/predict/step_cost_model.h"
#include "tools/config/train_config.h"

namespace slackline {

// Decides what the config's layout leaves open: groups are the data ranks of a node, under "auto"
// the strategy is that of the checkpoint which the run goes on from, else the fastest by the
// planner's costs, at these speeds, in the memory that ranks have left, and collectives go through
// groups where that is asked for or takes less by the links. The same on all ranks, which all call
// it; throws AgreedError where the config asks for what the ranks do not have. `probed` are links
// that were measured.
void decide_layout(Communicator& world,
                   const LinkSpeeds& probed,
                   const DeviceTransport& transport,
                   const AssumedSpeeds& speeds,
                   bool resume,
                   TrainConfig& config);

}  // namespace slackline
