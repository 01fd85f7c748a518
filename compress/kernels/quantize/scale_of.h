#pragma once

namespace slackline {

// The elements of a matrix that share one scale: a column (channel), a row (token), `group`
// neighbours in a row (fewer at its end), or all (tensor). `both`: an element's scale is the
// product of one of its row and one of its column.
enum class ScaleOf { channel, token, group, tensor, both };

}  // namespace slackline
