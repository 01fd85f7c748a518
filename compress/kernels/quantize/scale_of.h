#pragma once

namespace slackline {

// The elements of a matrix that share one scale: a column (channel), a row (token), `group`
// neighbours in a row (fewer at its end), or all (tensor).
enum class ScaleOf { channel, token, group, tensor };

}  // namespace slackline
