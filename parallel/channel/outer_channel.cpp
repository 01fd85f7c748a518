#include "parallel/channel/outer_channel.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace slackline {

OuterChannel::OuterChannel(const Options& options) : options_(options) {
  if (!options_.codec) {
    return;
  }
  plan_ = coded_round(
      options_.shares,
      *options_.pieces,
      *options_.codec,
      {.workers = options_.group->size(), .worker = options_.group->rank(), .seed = options_.seed});
  packed_ = Buffer("plain differences",
                   elements_of(plan_.plain) * size_of(DType::f32),
                   backing_of(options_.workers.device));
  coded_.reserve(plan_.sums.size());
  for (const CodedSum& sum : plan_.sums) {
    coded_.emplace_back(sum, options_.differences, options_.codecs);
  }
}

std::size_t OuterChannel::codec_workspace() const {
  std::size_t bytes = 0;
  for (const CompressedSum& sum : coded_) {
    bytes = std::max(bytes, sum.codec().workspace_bytes(options_.workers));
  }
  return bytes;
}

void OuterChannel::begin(StreamView stream, std::int64_t step, Coding coding) {
  SL_CHECK(!is_under_way_, "a round begins while another one travels");
  is_under_way_ = true;
  is_coded_ = options_.codec && step > options_.plain_steps && coding == Coding::by_codec;
  is_coded_ ? begin_coded(stream, step) : begin_plain();
}

void OuterChannel::begin_plain() {
  if (options_.shares.empty()) {
    return;
  }
  const std::size_t first = options_.shares.front().first;
  for (const Slice& slice : outer_transfers(elements_of(options_.shares) - first)) {
    const Slice elements{first + slice.begin, first + slice.end};
    transfers_.push_back(options_.group->all_reduce(part_of(options_.differences, elements),
                                                    {.what = "outer round"}));
  }
}

void OuterChannel::begin_coded(StreamView stream, std::int64_t step) {
  copy_packed(stream, plan_.plain, options_.differences, packed_, Packing::pack);
  stream.synchronize();  // codecs' stream does not know of it
  for (const Slice& slice : outer_transfers(elements_of(plan_.plain))) {
    transfers_.push_back(
        options_.group->all_reduce(part_of(packed_.row(DType::f32), slice),
                                   {.what = "outer round beside what is compressed"}));
  }
  for (CompressedSum& sum : coded_) {
    sum.begin(*codecs_,
              *options_.group,
              {.seed = options_.seed, .step = static_cast<std::uint64_t>(step)});
  }
}

bool OuterChannel::done() const {
  return std::ranges::all_of(transfers_, [](const Transfer& one) { return one.done(); }) &&
         (!is_coded_ ||
          std::ranges::all_of(coded_, [](const CompressedSum& sum) { return sum.done(); }));
}

void OuterChannel::wait() {
  wait_for_all(transfers_);
  for (CompressedSum& sum : coded_) {
    sum.finish();
  }
}

void OuterChannel::finish(StreamView stream) {
  wait();
  transfers_.clear();
  if (std::exchange(is_coded_, false)) {
    codecs_->worker->finish();
    copy_packed(stream, plan_.plain, options_.differences, packed_, Packing::unpack);
  }
  is_under_way_ = false;
}

void OuterChannel::add_state(const StateRanks& ranks, std::vector<ChannelState>& list) const {
  for (const CompressedSum& sum : coded_) {
    sum.add_state(ranks, list);
  }
}

}  // namespace slackline
