#include "parallel/step/background_round.h"

#include <algorithm>
#include <exception>

#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/update/sum_of_squares.h"

namespace slackline {

namespace {

constexpr TransferNote kNote{.what = "outer round"};

// Returns what a device needs to sum squares of parts.
std::size_t workspace_bytes(const std::vector<OwnedTransfer>& transfers, const Workers& workers) {
  std::size_t most = 0;
  for (const OwnedTransfer& transfer : transfers) {
    std::vector<Tensor> parts;
    for (const OuterShare& share : transfer.shares) {
      parts.emplace_back(
          nullptr, DType::f32, Shape{static_cast<std::int64_t>(share.range.count())});
    }
    most = std::max(most, sums_of_squares_workspace_bytes(parts, workers));
  }
  return most;
}

}  // namespace

BackgroundRound::BackgroundRound(MeshModel& model, OuterMemory& memory, Communicator& group)
    : model_(&model),
      memory_(&memory),
      group_(&group),
      shares_(outer_shares(model.pieces())),
      owned_(owned_transfers(shares_, group.rank(), group.size())),
      start_("next start of outer rounds",
             elements_of(shares_) * size_of(DType::f32),
             backing_of(model.stream().device())),
      stream_({.name = "update of rounds",
               .device = model.stream().device(),
               .num_threads = model.options().num_threads,
               .workspace_bytes = workspace_bytes(
                   owned_, {model.options().num_threads, model.stream().device()})}),
      worker_(std::make_shared<Worker>()),
      squares_of_sums_(owned_.size(), 0.0) {}

BackgroundRound::~BackgroundRound() {
  try {
    finish(model_->stream());
  } catch (const std::exception&) {  // what failed is on its way to whoever called
  }
  worker_->stop();
}

Tensor BackgroundRound::part_of_start(const Slice& elements) const {
  return part_of(start_.row(DType::f32), elements);
}

Slice BackgroundRound::place_of(const OwnedTransfer& transfer, const OuterShare& share) {
  const std::size_t begin = transfer.own.begin + (share.first - transfer.shares.front().first);
  return {begin, begin + share.range.count()};
}

void BackgroundRound::exchange() {
  for (const OuterShare& share : shares_) {
    const Slice elements{share.first, share.first + share.range.count()};
    slackline::exchange(model_->stream(), memory_->weight(share), part_of_start(elements));
  }
}

void BackgroundRound::start_at_weights() {
  for (const OuterShare& share : shares_) {
    const Slice elements{share.first, share.first + share.range.count()};
    cast(model_->stream(), memory_->weight(share), part_of_start(elements));
  }
}

void BackgroundRound::adopt_anchor() {
  gather_anchor();
  exchange();
  start_at_weights();
}

void BackgroundRound::gather_anchor() {
  SL_CHECK(!is_under_way_, "the anchor is gathered while a round travels");
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    for (const OuterShare& share : owned_[i].shares) {
      cast(model_->stream(), memory_->anchor(share), part_of_start(place_of(owned_[i], share)));
    }
    model_->stream().synchronize();
    gather(i, Follows::nothing, {});
  }
  finish(model_->stream());
}

void BackgroundRound::begin(const OuterStep& step, const std::vector<double>& divisors) {
  SL_CHECK(!is_under_way_, "a round begins while another one travels");
  is_under_way_ = true;
  model_->stream().synchronize();  // the update's stream does not know of it
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    // A sum that work follows goes the way of work, as far as the memory that work reads.
    transfers_.push_back(group_->reduce_scatter(
        part_of_start(owned_[i].elements), kNote, SumOrder::ranks, {.worker = worker_}));
    gather(i, Follows::sum, [this, i, step, divisors] {
      take_sum(i);
      make_start(i, step, divisors);
    });
  }
}

void BackgroundRound::begin_start(const OuterStep& step, const std::vector<double>& divisors) {
  SL_CHECK(!is_under_way_, "a start is sent while a round travels");
  is_under_way_ = true;
  model_->stream().synchronize();
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    gather(i, Follows::nothing, [this, i, step, divisors] { make_start(i, step, divisors); });
  }
}

void BackgroundRound::gather(std::size_t transfer,
                             Follows follows,
                             const std::function<void()>& before) {
  const TransferWork work{.worker = worker_,
                          .before = before,
                          .follows = follows == Follows::sum ? &transfers_.back() : nullptr};
  transfers_.push_back(group_->all_gather(part_of_start(owned_[transfer].elements), kNote, work));
}

void BackgroundRound::take_sum(std::size_t transfer) {
  const OwnedTransfer& own = owned_[transfer];
  const auto workers = static_cast<float>(group_->size());
  std::vector<Tensor> counted;
  for (const OuterShare& share : own.shares) {
    if (share.counted) {
      counted.push_back(part_of_start(place_of(own, share)));
    }
  }
  squares_of_sums_[transfer] = sum_of(sums_of_squares(stream_, counted));
  for (const OuterShare& share : own.shares) {
    const Tensor sum = part_of_start(place_of(own, share));
    const Tensor difference = memory_->difference(share);
    scale(stream_, difference, workers, difference);
    scale(stream_, sum, -1.0F, sum);
    accumulate(stream_, sum, difference);
  }
}

void BackgroundRound::make_start(std::size_t transfer,
                                 const OuterStep& step,
                                 const std::vector<double>& divisors) {
  const OwnedTransfer& own = owned_[transfer];
  for (const OuterShare& share : own.shares) {
    OuterStep to_start = memory_->step_of(share, step, divisors);
    to_start.writes = OuterWrites::weight;
    outer_step(stream_, memory_->tensors_of(share, part_of_start(place_of(own, share))), to_start);
  }
  stream_.synchronize();
}

bool BackgroundRound::done() const {
  return std::ranges::all_of(transfers_, [](const Transfer& one) { return one.done(); });
}

void BackgroundRound::wait() {
  wait_for_all(transfers_);
}

void BackgroundRound::finish(StreamView stream) {
  wait();
  transfers_.clear();
  worker_->finish();
  stream.synchronize();
  is_under_way_ = false;
}

double BackgroundRound::squares_of_ends() {
  std::vector<Tensor> counted;
  for (const OuterShare& share : shares_) {
    if (share.counted) {
      counted.push_back(part_of_start({share.first, share.first + share.range.count()}));
    }
  }
  return sum_of(sums_of_squares(model_->stream(), counted));
}

double BackgroundRound::squares_of_sum() const {
  return sum_of(squares_of_sums_);
}

}  // namespace slackline
