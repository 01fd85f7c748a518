#include "parallel/channel/boundary_codecs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace slackline {

using schedule::Op;
using Side = BoundaryEnd::Side;

void BoundaryCodecs::obey(const CompressionPlan& plan, const CodecMaker& maker) {
  std::vector<std::unique_ptr<BoundaryCodec>> before = std::exchange(codecs_, {});
  const ByTransfer transfers_before = std::exchange(by_transfer_, {});
  for (const Op& op : boundaries_.ops()) {
    if (const std::optional<BoundaryEnd> end = boundaries_.end_of(op, plan)) {
      by_transfer_[PipelineBoundaries::key_of(op)] = find_or_make(*end, maker, before);
    }
  }
  hand_over(transfers_before);
  hand_over_lazy(before, transfers_before);
  drop_what_others_send();
}

// Gives each micro-batch's residual to the codec that sends it from now on.
void BoundaryCodecs::hand_over(const ByTransfer& before) {
  for (const auto& [key, codec] : by_transfer_) {
    const auto found = before.find(key);
    if (key.second != Side::sends || found == before.end() || found->second == codec) {
      continue;
    }
    const auto feedback = [](BoundaryCodec& of) { return of.end().setting.error_feedback; };
    if (feedback(*codec) == ErrorFeedback::immediate &&
        feedback(*found->second) == ErrorFeedback::immediate) {
      codec->take_residual(key.first.micro_batch, *found->second);
    }
  }
}

void BoundaryCodecs::drop_what_others_send() {
  std::map<BoundaryCodec*, std::set<int>> sent;
  for (const auto& [key, codec] : by_transfer_) {
    if (key.second == Side::sends) {
      sent[codec].insert(key.first.micro_batch);
    }
  }
  for (const auto& [codec, micro_batches] : sent) {
    if (codec->end().setting.error_feedback == ErrorFeedback::immediate) {
      codec->keep_residuals_of(micro_batches);
    }
  }
}

// Gives what a codec that has ended owes to who sends its messages now, else to any other of its
// boundary.
void BoundaryCodecs::hand_over_lazy(const std::vector<std::unique_ptr<BoundaryCodec>>& ended,
                                    const ByTransfer& before) {
  for (const std::unique_ptr<BoundaryCodec>& codec : ended) {
    if (codec == nullptr || codec->end().setting.error_feedback != ErrorFeedback::lazy) {
      continue;
    }
    const auto is_heir = [&](const BoundaryCodec& candidate) {
      BoundaryEnd end = candidate.end();
      const bool same_feedback = end.setting.error_feedback == codec->end().setting.error_feedback;
      end.setting = codec->end().setting;
      return same_feedback && end == codec->end();
    };
    const auto next = std::ranges::find_if(by_transfer_, [&](const auto& now) {
      const auto was = before.find(now.first);
      return was != before.end() && was->second == codec.get() && is_heir(*now.second);
    });
    const auto any = std::ranges::find_if(
        codecs_, [&](const std::unique_ptr<BoundaryCodec>& other) { return is_heir(*other); });
    if (next != by_transfer_.end()) {
      next->second->take_residual(0, *codec);
    } else if (any != codecs_.end()) {
      (*any)->take_residual(0, *codec);
    }
  }
}

BoundaryCodec* BoundaryCodecs::find_or_make(const BoundaryEnd& end,
                                            const CodecMaker& maker,
                                            std::vector<std::unique_ptr<BoundaryCodec>>& before) {
  const auto is_wanted = [&](const std::unique_ptr<BoundaryCodec>& codec) {
    return codec != nullptr && codec->end() == end;
  };
  if (const auto made = std::find_if(codecs_.begin(), codecs_.end(), is_wanted);
      made != codecs_.end()) {
    return made->get();
  }
  const auto kept = std::find_if(before.begin(), before.end(), is_wanted);
  codecs_.push_back(kept != before.end() ? std::move(*kept)
                                         : std::make_unique<BoundaryCodec>(end, maker));
  return codecs_.back().get();
}

BoundaryCodec* BoundaryCodecs::at(const Op& op) const {
  if (by_transfer_.empty()) {
    return nullptr;
  }
  const auto found = by_transfer_.find(PipelineBoundaries::key_of(op));
  return found == by_transfer_.end() ? nullptr : found->second;
}

std::vector<BoundaryCodec*> BoundaryCodecs::senders() const {
  std::vector<BoundaryCodec*> list;
  for (const std::unique_ptr<BoundaryCodec>& codec : codecs_) {
    if (codec->end().side == Side::sends) {
      list.push_back(codec.get());
    }
  }
  return list;
}

void BoundaryCodecs::begin_sample() {
  std::map<BoundaryCodec*, BoundarySample::Classes> classes;
  for (const auto& [transfer, codec] : by_transfer_) {
    const auto& [id, side] = transfer;
    if (side == Side::sends) {
      classes[codec].emplace(id.micro_batch, boundaries_.class_of(id));
    }
  }
  for (auto& [codec, sampled] : classes) {
    codec->begin_sample(std::move(sampled));
  }
}

void BoundaryCodecs::take_times(std::vector<CodecTimes>& times) {
  for (const std::unique_ptr<BoundaryCodec>& codec : codecs_) {
    times.push_back(codec->take_times());
  }
}

void BoundaryCodecs::take_samples(StepSamples& samples) {
  for (BoundaryCodec* codec : senders()) {
    if (const std::optional<BoundarySample> sample = codec->take_sample()) {
      for (const auto& [members, sums] : sample->sums()) {
        samples.add(members, sums);
      }
    }
  }
}

std::size_t BoundaryCodecs::codec_workspace(const Workers& workers) const {
  std::size_t bytes = 0;
  for (const std::unique_ptr<BoundaryCodec>& codec : codecs_) {
    bytes = std::max(bytes, boundary_workspace_bytes(codec->end(), codec->codec(), workers));
  }
  return bytes;
}

void BoundaryCodecs::add_state(const StateRanks& ranks, std::vector<ChannelState>& list) {
  std::map<std::string, int> numbers;
  for (BoundaryCodec* codec : senders()) {
    const std::string& place = codec->end().place;
    codec->add_state(boundary_label(place, ++numbers[place]), ranks, list);
  }
}

}  // namespace slackline
