#include "parallel/channel/sum_channel.h"

#include <algorithm>
#include <utility>

namespace slackline {

void SumChannel::obey(const CompressionPlan& plan, const CodecMaker& maker) {
  CodedBucket next = coded_bucket(options_.op, *options_.sync, *options_.rank, plan, options_.seed);
  if (next.sums.empty()) {
    next = {};
  }
  if (next == plan_) {
    return;
  }
  std::vector<CompressedSum> before = std::exchange(coded_, {});
  plan_ = std::move(next);
  coded_.reserve(plan_.sums.size());
  for (const CodedSum& sum : plan_.sums) {
    CompressedSum& made = coded_.emplace_back(sum, options_.gradient, maker);
    for (CompressedSum& old : before) {
      made.adopt(old);
    }
  }
  packed_ = Buffer("plain gradients",
                   elements_of(plan_.plain) * size_of(DType::f32),
                   backing_of(options_.gradient.device()));
}

void SumChannel::begin(const MessageKey& key, const std::optional<Keeping>& keeping) {
  if (keeping && kept_step_ != key.step) {
    kept_step_ = key.step;
    keep(*keeping);
  }
  coded_.empty() ? begin_plain() : begin_coded(key);
}

void SumChannel::keep(const Keeping& keeping) const {
  if (bucket().kind == GradientBucket::Kind::norms) {
    return;
  }
  for (const SummedPart& part : summed_parts(options_.op, *options_.sync, *options_.rank)) {
    if (part.shape.rank() == 2) {
      const schedule::TransferClass members =
          gradient_class(*part.parameter, bucket(), *options_.rank);
      keeping.messages->keep(
          keeping.stream, members.site, members.stage, part.of(options_.gradient), part.moments());
    }
  }
}

void SumChannel::begin_plain() {
  Communicator& group = *options_.group;
  const SyncOp& op = options_.op;
  const bool table = op.group == SyncGroup::table;
  const TransferNote note{.what = table ? "gradient of the tied table" : "gradients"};
  transfer_ = op.kind == SyncOp::Kind::reduce_scatter
                  ? group.reduce_scatter(options_.gradient, note, op.order)
                  : group.all_reduce(options_.gradient, note, op.order);
}

void SumChannel::begin_coded(const MessageKey& key) {
  const CodecStream& at = *codecs_;
  const auto copies = [&](Packing packing) {
    return [this, stream = at.stream, packing] {
      copy_packed(stream, plan_.plain, options_.gradient, packed_, packing);
      stream.synchronize();
    };
  };
  if (!plan_.plain.empty()) {
    transfer_ = options_.group->all_reduce(
        packed_.row(DType::f32),
        {.what = "gradients beside compressed ones"},
        plan_.order,
        {.worker = at.worker, .before = copies(Packing::pack), .after = copies(Packing::unpack)});
  }
  number_ = key.step == step_ ? number_ + 1 : 0;
  step_ = key.step;
  MessageKey own = key;
  own.micro_batch = number_;
  for (CompressedSum& sum : coded_) {
    sum.begin(at, *options_.group, own);
  }
}

void SumChannel::finish() {
  transfer_.wait();
  for (CompressedSum& sum : coded_) {
    sum.finish();
  }
}

std::size_t SumChannel::codec_workspace(const Workers& workers) const {
  std::size_t bytes = 0;
  for (const CompressedSum& sum : coded_) {
    bytes = std::max(bytes, sum.codec().workspace_bytes(workers));
  }
  return bytes;
}

void SumChannel::begin_sample() {
  for (CompressedSum& sum : coded_) {
    sum.begin_sample();
  }
}

void SumChannel::take_samples(StepSamples& samples) {
  for (CompressedSum& sum : coded_) {
    StepSamples::Gradients gradients{.sample = sum.take_sample(), .counts = sum.plan().rank == 0};
    for (const SummedPart& matrix : sum.plan().matrices) {
      auto& members = gradients.classes.emplace_back();
      if (matrix.counted) {
        members = gradient_class(*matrix.parameter, bucket(), *options_.rank);
      }
    }
    gradients.sample->add_up(*options_.group);
    samples.add(std::move(gradients));
  }
}

void SumChannel::take_times(std::vector<CodecTimes>& times) {
  for (CompressedSum& sum : coded_) {
    times.push_back(sum.take_times());
  }
}

void SumChannel::add_state(const StateRanks& ranks, std::vector<ChannelState>& list) {
  for (CompressedSum& sum : coded_) {
    sum.add_state(ranks, list);
  }
}

}  // namespace slackline
