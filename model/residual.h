#pragma once

#include <optional>
#include <string>

#include "core/tensor/arena.h"
#include "model/norm.h"
#include "model/pass.h"

namespace slackline {

// The end of both halves of a block: out = x + dropout(branch), and the norm of it, where one
// follows. branch is (N, C), of which the rows this rank owns count; x and out are (n, C).
void add_to_residual(const Pass& pass,
                     const std::string& site,
                     const Tensor& branch,
                     const Tensor& x,
                     const Tensor& out,
                     const std::optional<FollowingNorm>& next);

// The norm of an x that came from elsewhere.
void make_norm(const Pass& pass, const Tensor& x, const FollowingNorm& norm);

// The gradient of branch (N, C), all rows of it, from d_residual (n, C). Written to `into` when it
// is given; else it lies in scratch, or is d_residual itself where nothing has to be done.
[[nodiscard]] Tensor branch_gradient(const Pass& pass,
                                     const std::string& site,
                                     const Tensor& d_residual,
                                     const Tensor& into,
                                     ArenaScope& scratch);

}  // namespace slackline
