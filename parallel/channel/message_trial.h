#pragma once

#include <map>
#include <vector>

#include "core/comm/communicator.h"
#include "parallel/channel/kept_messages.h"
#include "parallel/plan/codec_errors.h"

namespace slackline {

// Has every candidate of a class's site code what ranks have kept of a step, and says what it loses
// of the messages of each class; the same on every rank. Says nothing of a class that no rank has
// kept a message of.
//
// Errors are of a message alone, without error feedback; low ranks have seen it three times before,
// as in a run whose messages change slowly. Of a part of a message low_rank has the same share of
// its directions. Classes of one boundary that differ in phase share a message. All ranks call it;
// blocks, and leaves no trace.
[[nodiscard]] std::vector<CodecError> try_candidates(
    const KeptMessages& messages,
    const std::map<schedule::Site, std::vector<CodecSetting>>& candidates,
    const std::vector<schedule::TransferClass>& classes,
    const Workers& workers,
    Communicator& world);

}  // namespace slackline
