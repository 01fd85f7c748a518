#include "parallel/channel/compressed_sum.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compress/codec_bytes.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

void copy(const Tensor& from, const Tensor& to) {
  SL_CHECK_EQ(from.num_elements(), to.num_elements());
  const HostTensor read(from);
  const HostTensor written(to, HostTensor::Contents::undefined);
  std::ranges::copy(read.tensor().span<float>(), written.tensor().span<float>().begin());
  written.write_back();
}

// Names its transfers.
TransferNote note_of(const CodedSum& sum) {
  return {.what =
              sum.of == CodedSum::Of::round ? "compressed outer round" : "compressed gradients"};
}

// Begins the names of its state.
const char* site_of(const CodedSum& sum) {
  constexpr std::array<const char*, 3> kSites = {
      "residual/data_gradient/", "residual/embedding/", "residual/outer/"};
  return kSites[static_cast<std::size_t>(sum.of)];
}

std::unique_ptr<Codec> codec_for(const CodedSum& sum,
                                 const std::vector<CodecPart>& parts,
                                 Device device,
                                 const CodecMaker& maker) {
  return maker({.setting = sum.setting,
                .parts = parts,
                .shape = message_shape(parts),
                .seed = sum.seed,
                .device = device});
}

// Whether factors are as large on all tensor ranks. Where columns are cut, they divide.
bool has_equal_factors(const CodedSum& sum, const ParameterSpec& spec, int tensor_size) {
  return spec.cut != TensorCut::rows ||
         shards_share_factor_rank(
             sum.setting, {.rows = spec.shape[0], .columns = spec.shape[1]}, tensor_size);
}

std::unique_ptr<SumSlices> slices_for(const CodedSum& sum, Device device, const CodecMaker& maker) {
  const std::vector<CodecPart> parts = matrix_parts(sum.matrices);
  SumSlices::Codecs codecs(sum.owners.size());
  for (std::size_t rank = 0; rank < codecs.size() && !adds(sum.setting.kind); ++rank) {
    std::vector<CodecPart> rows = parts_of_rows(parts, sum.owners[rank]);
    const bool is_decoded = sum.two_shot || static_cast<int>(rank) == sum.rank;
    if (rows.empty() || !is_decoded) {
      continue;
    }
    for (CodecPart& part : rows) {
      part.name += "/sum";  // its random numbers are not those of this rank's message
    }
    codecs[rank] = codec_for(sum, rows, device, maker);
  }
  return std::make_unique<SumSlices>(SumSlices::Options{.setting = sum.setting,
                                                        .parts = parts,
                                                        .owners = sum.owners,
                                                        .rank = sum.rank,
                                                        .device = device},
                                     std::move(codecs));
}

}  // namespace

CompressedSum::CompressedSum(const CodedSum& sum, const Tensor& elements, const CodecMaker& maker)
    : plan_(sum),
      codec_(codec_for(sum, matrix_parts(sum.matrices), elements.device(), maker)),
      residuals_(sum.setting.error_feedback, matrix_parts(sum.matrices), 1, elements.device()) {
  for (const SummedPart& matrix : sum.matrices) {
    gradients_.push_back(matrix.of(elements));
  }
  if (!sum.owners.empty()) {
    slices_ = slices_for(sum, elements.device(), maker);
  } else if (codec_->sums() == 0) {
    frames_ = Buffer("frames",
                     codec_->frame_bytes() * static_cast<std::size_t>(sum.ranks),
                     backing_of(elements.device()));
  }
}

void CompressedSum::begin(const CodecStream& at, Communicator& group, const MessageKey& key) {
  SL_CHECK_EQ(group.size(), plan_.ranks);
  MessageKey own = key;
  own.sender += key.micro_batch * static_cast<std::uint64_t>(group.size()) +
                static_cast<std::uint64_t>(group.rank());
  if (slices_ != nullptr) {
    codec_->sums() > 0 ? begin_slices_of_sum(at, group, own)
                       : begin_slices_of_frames(at, group, own);
    if (plan_.two_shot) {
      begin_second_shot(at, group, own);
    }
    return;
  }
  codec_->sums() > 0 ? begin_sums(at, group, own) : begin_frames(at, group, own);
}

void CompressedSum::begin_sample() {
  sample_ = std::make_unique<GradientSample>(gradients_);
  if (slices_ != nullptr && !plan_.two_shot) {
    sample_->take_sent_of(rows_counted_by(plan_.owners, plan_.rank));
  }
}

bool CompressedSum::done() const {
  return std::ranges::all_of(transfers_, [](const Transfer& transfer) { return transfer.done(); });
}

void CompressedSum::finish() {
  wait_for_all(transfers_);
  transfers_.clear();
}

// Each round's addend is made of the sum of the round before.
void CompressedSum::begin_sums(const CodecStream& at, Communicator& group, const MessageKey& key) {
  std::vector<Tensor> addends;
  for (int round = 1; round <= codec_->sums(); ++round) {
    addends.push_back(codec_->addend(round));
  }
  for (int round = 1; round <= codec_->sums(); ++round) {
    const bool first = round == 1;
    TransferWork work{.worker = at.worker, .follows = first ? nullptr : &transfers_.back()};
    work.before = [this, stream = at.stream, key, first] {
      if (first) {
        take_raw_sample(stream);
      }
      const TimedCall timed(encode_times_, first ? 1 : 0);
      first ? codec_->begin_sum(stream, gradients_, residuals_.of(0), key)
            : codec_->next_sum(stream, gradients_, residuals_.of(0));
      stream.synchronize();
    };
    if (round == codec_->sums()) {
      work.after = [this, stream = at.stream] {
        {
          const TimedCall timed(decode_times_);
          codec_->finish_sum(stream, gradients_, residuals_.of(0), plan_.ranks);
          stream.synchronize();
        }
        take_sent_sample(stream);
      };
    }
    transfers_.push_back(group.all_reduce(
        addends[static_cast<std::size_t>(round - 1)], note_of(plan_), plan_.order, work));
  }
}

void CompressedSum::begin_frames(const CodecStream& at,
                                 Communicator& group,
                                 const MessageKey& key) {
  const Tensor own = frame_of(group.rank());
  TransferWork work{.worker = at.worker};
  work.before = [this, stream = at.stream, key, own] {
    take_raw_sample(stream);
    const TimedCall timed(encode_times_);
    encode(stream, key, own);
  };
  work.beside = [this, stream = at.stream, own] { settle(stream, own); };
  work.after = [this, stream = at.stream] {
    add_frames(stream);
    take_sent_sample(stream);
  };
  transfers_.push_back(group.all_gather(frames_.row(DType::u8), note_of(plan_), work));
}

void CompressedSum::encode(StreamView stream, const MessageKey& key, const Tensor& frame) {
  codec_->encode(stream, gradients_, residuals_.of(0), key, frame);
  stream.synchronize();
}

void CompressedSum::settle(StreamView stream, const Tensor& frame) {
  if (!residuals_.of(0).empty()) {
    codec_->settle(stream, frame, residuals_.of(0));
    stream.synchronize();
  }
}

// The one round of messages that add and can be cut by rows.
void CompressedSum::begin_slices_of_sum(const CodecStream& at,
                                        Communicator& group,
                                        const MessageKey& key) {
  TransferWork work{.worker = at.worker};
  work.before = [this, stream = at.stream, key] {
    take_raw_sample(stream);
    const TimedCall timed(encode_times_);
    codec_->begin_sum(stream, gradients_, residuals_.of(0), key);
    slices_->scatter(stream, codec_->addend(1));
    stream.synchronize();
  };
  work.after = [this, stream = at.stream] {
    {
      const TimedCall timed(decode_times_);
      slices_->collect(stream, codec_->addend(1));
      codec_->finish_sum(stream, gradients_, residuals_.of(0), plan_.ranks);
      stream.synchronize();
    }
    take_sent_sample(stream);
  };
  transfers_.push_back(group.reduce_scatter(slices_->addends(), note_of(plan_), plan_.order, work));
}

void CompressedSum::begin_slices_of_frames(const CodecStream& at,
                                           Communicator& group,
                                           const MessageKey& key) {
  TransferWork work{.worker = at.worker};
  work.before = [this, stream = at.stream, key] {
    take_raw_sample(stream);
    const TimedCall timed(encode_times_);
    encode(stream, key, slices_->frame());
    slices_->cut(stream);
    stream.synchronize();
  };
  work.beside = [this, stream = at.stream] { settle(stream, slices_->frame()); };
  work.after = [this, stream = at.stream] {
    {
      const TimedCall timed(decode_times_);
      slices_->add_up(stream, gradients_);
      stream.synchronize();
    }
    if (!plan_.two_shot) {
      take_sent_sample(stream);
    }
  };
  transfers_.push_back(
      group.all_to_all(slices_->sent(), slices_->received(), note_of(plan_), work));
}

// The sum of its rows takes along what this rank's own message left out of them.
void CompressedSum::begin_second_shot(const CodecStream& at,
                                      Communicator& group,
                                      const MessageKey& key) {
  TransferWork work{.worker = at.worker, .follows = &transfers_.back()};
  work.before = [this, stream = at.stream, key] {
    slices_->encode_sums(stream, gradients_, residuals_.of(0), key);
    stream.synchronize();
  };
  work.beside = [this, stream = at.stream] {
    slices_->settle_sums(stream, residuals_.of(0));
    stream.synchronize();
  };
  work.after = [this, stream = at.stream] {
    {
      const TimedCall timed(decode_times_);
      slices_->decode_sums(stream, gradients_);
      stream.synchronize();
    }
    take_sent_sample(stream);
  };
  transfers_.push_back(group.all_gather(slices_->sums(), note_of(plan_), work));
}

CodecTimes CompressedSum::take_times() {
  return {.setting = setting_of_calls(plan_.setting),
          .shape = message_shape(plan_),
          .sent_bytes = message_bytes(plan_),
          .encode = std::exchange(encode_times_, {}),
          .decode = std::exchange(decode_times_, {})};
}

void CompressedSum::take_raw_sample(StreamView stream) {
  if (sample_ != nullptr) {
    sample_->take_raw(stream, gradients_);
  }
}

void CompressedSum::take_sent_sample(StreamView stream) {
  if (sample_ != nullptr) {
    sample_->take_sent(stream, gradients_, residuals_.of(0));
  }
}

void CompressedSum::adopt(CompressedSum& before) {
  const bool same_setting = plan_.setting == before.plan_.setting;
  const std::vector<CodecState> states = codec_->state();
  const std::vector<CodecState> states_before = before.codec_->state();
  for (std::size_t i = 0; i < plan_.matrices.size(); ++i) {
    const std::vector<SummedPart>& matrices = before.plan_.matrices;
    const auto found = std::find(matrices.begin(), matrices.end(), plan_.matrices[i]);
    if (found == matrices.end()) {
      continue;
    }
    const auto k = static_cast<std::size_t>(found - matrices.begin());
    if (!residuals_.all().empty() && !before.residuals_.all().empty()) {
      copy(before.residuals_.of(0)[k], residuals_.of(0)[i]);
    }
    if (same_setting && !states.empty()) {
      copy(states_before[k].data, states[i].data);
    }
  }
}

Tensor CompressedSum::frame_of(int rank) const {
  const auto bytes = static_cast<std::int64_t>(codec_->frame_bytes());
  return frames_.row(DType::u8).rows(rank * bytes, (rank + 1) * bytes);
}

void CompressedSum::add_frames(StreamView stream) {
  const TimedCall timed(decode_times_, plan_.ranks);
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    codec_->decode(stream, frame_of(rank), gradients_, rank > 0);
  }
  stream.synchronize();
}

// Debts to a whole parameter are stored by the parameter's elements, what its codec learned as
// tensor ranks' slices of one array; state of a part as an array of its own, named by the part and
// the tensor rank: a run goes on with it where the same elements are added up, by however many
// groups. So are factors whose rank differs from tensor rank to tensor rank. What rounds owe to
// parts is stored by elements too, so that any rank may take it over, unless their codec also
// learns of the part.
void CompressedSum::add_state(const StateRanks& ranks, std::vector<ChannelState>& list) const {
  const std::vector<CodecState> learned = codec_->state();
  for (std::size_t i = 0; i < plan_.matrices.size(); ++i) {
    const SummedPart& matrix = plan_.matrices[i];
    const Parameter& parameter = *matrix.parameter;
    const bool cut = parameter.spec.cut != TensorCut::none;
    const int rank = cut ? ranks.tensor : 0;
    const int size = cut ? ranks.tensor_size : 1;
    const bool of_round = plan_.of == CodedSum::Of::round;
    const bool by_elements = !matrix.is_part || (of_round && learned.empty());
    const std::string own_name =
        fmt::format("{}{}/{}-{}", site_of(plan_), matrix.name(), rank, size);
    const std::string name = by_elements ? site_of(plan_) + parameter.spec.name : own_name;
    const auto add_owed = [&](ChannelState state) {
      state.worker = plan_.rank;
      state.num_workers = plan_.ranks;
      state.saved = matrix.counted;
      state.sums = by_elements || !of_round;
      list.push_back(std::move(state));
    };
    if (!owed().empty() && !by_elements) {
      add_owed(own_array(name, owed()[i]));
    } else if (!owed().empty()) {
      for (const ShardPart& part : parts_of_range(parameter.shard, matrix.elements)) {
        add_owed({.name = name,
                  .data = owed()[i],
                  .logical = parameter.spec.shape,
                  .region = part.logical,
                  .place = {.shape = parameter.shard.shape,
                            .region = part.local,
                            .first = matrix.elements.begin}});
      }
    }
    if (!learned.empty()) {
      const bool by_rank = by_elements && has_equal_factors(plan_, parameter.spec, size);
      ChannelState& state = list.emplace_back(
          own_array((by_rank ? name : own_name) + "." + learned[i].name, learned[i].data));
      state.saved = matrix.counted && plan_.rank == 0;
      if (by_rank) {
        place_by_rank(state, rank, size);
      }
    }
  }
}

void copy_packed(StreamView stream,
                 const std::vector<SummedPart>& parts,
                 const Tensor& row,
                 const Buffer& packed,
                 Packing packing) {
  std::size_t offset = 0;
  for (const SummedPart& part : parts) {
    const Tensor own = part.of(row);
    const Tensor copy = packed.view(DType::f32, part.shape, offset);
    packing == Packing::pack ? cast(stream, own, copy) : cast(stream, copy, own);
    offset += copy.bytes();
  }
}

}  // namespace slackline
