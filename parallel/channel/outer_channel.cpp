#include "parallel/channel/outer_channel.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

const std::string kSite = "residual/outer/";

}  // namespace

OuterChannel::OuterChannel(const Options& options) : options_(options) {
  if (!options_.codec) {
    return;
  }
  round_ = coded_round(
      options_.shares,
      *options_.pieces,
      *options_.codec,
      {.workers = options_.group->size(), .worker = options_.group->rank(), .seed = options_.seed});
  for (std::size_t i = 0; i < round_.matrices.size(); ++i) {
    Parameter& matrix = round_.parameters[i];
    matrix.gradient =
        part_of(options_.differences, round_.matrices[i].elements).reshaped(matrix.shard.shape);
  }
  if (round_.rest_elements() > 0) {
    packed_ = make_buffer("plain differences",
                          DType::f32,
                          {static_cast<std::int64_t>(round_.rest_elements())},
                          backing_of(options_.workers.device));
  }
  coded_.reserve(round_.bucket.sums.size());
  for (const CodedSum& sum : round_.bucket.sums) {
    coded_.emplace_back(sum, options_.codecs);
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
  copy_rest(stream, Direction::pack);
  stream.synchronize();  // codecs' stream does not know of it
  for (const Slice& slice : outer_transfers(round_.rest_elements())) {
    transfers_.push_back(options_.group->all_reduce(
        part_of(packed(), slice), {.what = "outer round beside what is compressed"}));
  }
  for (CompressedSum& sum : coded_) {
    sum.begin(*codecs_,
              *options_.group,
              {.seed = options_.seed, .step = static_cast<std::uint64_t>(step)});
  }
}

Tensor OuterChannel::packed() const {
  return packed_.view(DType::f32, {static_cast<std::int64_t>(round_.rest_elements())});
}

void OuterChannel::copy_rest(StreamView stream, Direction direction) const {
  std::size_t first = 0;
  for (const Slice& range : round_.rest) {
    const Tensor difference = part_of(options_.differences, range);
    const Tensor copy = part_of(packed(), {first, first + range.count()});
    direction == Direction::pack ? cast(stream, difference, copy) : cast(stream, copy, difference);
    first += range.count();
  }
}

bool OuterChannel::done() const {
  return std::ranges::all_of(transfers_, [](const Transfer& one) { return one.done(); }) &&
         (!is_coded_ ||
          std::ranges::all_of(coded_, [](const CompressedSum& sum) { return sum.done(); }));
}

void OuterChannel::wait() {
  for (Transfer& transfer : transfers_) {
    transfer.wait();
  }
  for (CompressedSum& sum : coded_) {
    sum.finish();
  }
}

void OuterChannel::finish(StreamView stream) {
  wait();
  transfers_.clear();
  if (std::exchange(is_coded_, false)) {
    codecs_->worker->finish();
    copy_rest(stream, Direction::unpack);
  }
  is_under_way_ = false;
}

// Codecs learn and leave out what is of that part alone.
void OuterChannel::add_state_of_part(const CompressedSum& sum,
                                     std::size_t matrix,
                                     const std::string& name,
                                     bool saved,
                                     std::vector<ChannelState>& list) const {
  const auto add = [&](const std::string& own, const Tensor& data) -> ChannelState& {
    ChannelState& state = list.emplace_back(own_array(own, data));
    state.saved = saved;
    return state;
  };
  const CodecState learned = sum.learned()[matrix];
  add(name + "." + learned.name, learned.data).saved = saved && options_.group->rank() == 0;
  if (!sum.owed().empty()) {
    ChannelState& owed = add(name, sum.owed()[matrix]);
    owed.worker = options_.group->rank();
    owed.num_workers = options_.group->size();
  }
}

void OuterChannel::add_owed(const OuterShare& share,
                            const Tensor& owed,
                            std::vector<ChannelState>& list) const {
  const Parameter& parameter = *(*options_.pieces)[share.piece].parameter;
  for (const ShardPart& part : parts_of_range(parameter.shard, share.range)) {
    ChannelState& state = list.emplace_back();
    state.name = kSite + parameter.spec.name;
    state.data = owed;
    state.logical = parameter.spec.shape;
    state.region = part.logical;
    state.place = {
        .shape = parameter.shard.shape, .region = part.local, .first = share.range.begin};
    state.worker = options_.group->rank();
    state.num_workers = options_.group->size();
    state.saved = share.counted;
    state.sums = true;
  }
}

std::vector<ChannelState> OuterChannel::state(const StateRanks& ranks) const {
  std::vector<ChannelState> list;
  std::size_t next = 0;  // of all matrices
  for (const CompressedSum& sum : coded_) {
    for (std::size_t i = 0; i < sum.plan().matrices.size(); ++i, ++next) {
      const OuterShare& share = options_.shares[round_.matrices[next].share];
      if (!sum.learned().empty()) {
        const Parameter& parameter = *(*options_.pieces)[share.piece].parameter;
        const bool all_alike = parameter.spec.cut == TensorCut::none;  // one of them saves it
        const std::string name = fmt::format("{}{}/{}-{}",
                                             kSite,
                                             sum.plan().matrices[i]->spec.name,
                                             all_alike ? 0 : ranks.tensor,
                                             all_alike ? 1 : ranks.tensor_size);
        add_state_of_part(sum, i, name, share.counted, list);
      } else if (!sum.owed().empty()) {
        add_owed(share, sum.owed()[i], list);
      }
    }
  }
  return list;
}

}  // namespace slackline
