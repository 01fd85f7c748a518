#include "model/residual.h"

#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/profile.h"

namespace slackline {

void add_to_residual(const Pass& pass,
                     const std::string& site,
                     const Tensor& branch,
                     const Tensor& x,
                     const Tensor& out,
                     const std::optional<FollowingNorm>& next) {
  const DropoutAdd sum = pass.dropout_rows(site, pass.sum->own_rows(branch), out, x);
  if (next) {
    pass.before_norm(next->part, next->layer);
    next->norm.forward(pass.stream, sum, next->kept);
  } else {
    const ProfileRange range(pass.stream, "residual");
    dropout_add(pass.stream, sum);
  }
}

void make_norm(const Pass& pass, const Tensor& x, const FollowingNorm& norm) {
  pass.before_norm(norm.part, norm.layer);
  norm.norm.forward(pass.stream, x, norm.kept);
}

Tensor branch_gradient(const Pass& pass,
                       const std::string& site,
                       const Tensor& d_residual,
                       const Tensor& into,
                       ArenaScope& scratch) {
  if (pass.dropout == 0.0F && !pass.sum->sequence_parallel() && into.empty()) {
    return d_residual;
  }
  const ProfileRange range(pass.stream, "residual");
  const Tensor whole =
      into.empty() ? scratch.allocate(d_residual.dtype(), {pass.num_tokens(), d_residual.dim(1)})
                   : into;
  const Tensor rows = pass.sum->own_rows(whole);
  if (pass.dropout > 0.0F) {
    dropout_add(pass.stream, pass.dropout_rows(site, d_residual, rows));
  } else {
    cast(pass.stream, d_residual, rows);
  }
  pass.sum->gather(rows, whole).wait();
  return whole;
}

}  // namespace slackline
