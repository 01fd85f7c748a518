#include "parallel/channel/sum_slices.h"

#include <utility>

#include "compress/codec_bytes.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

// What makes a shorter slice as long as the longest travels too.
void fill_rest(StreamView stream, const Tensor& slice, std::int64_t used) {
  if (used < slice.dim(0)) {
    fill_zero(stream, slice.rows(used, slice.dim(0)));
  }
}

}  // namespace

SumSlices::SumSlices(const Options& options, Codecs codecs)
    : options_(options), codecs_(std::move(codecs)) {
  const auto ranks = options.owners.size();
  const Backing backing = backing_of(options.device);
  if (adds(options.setting.kind)) {
    slice_ = slice_elements(options.parts, options.owners);
    sent_ = Buffer("slices of a sum", ranks * slice_ * size_of(DType::bf16), backing);
  } else {
    slice_ = slice_bytes(options.setting, options.parts, options.owners);
    frame_ = Buffer("frame", frame_bytes(options.setting, options.parts), backing);
    sent_ = Buffer("slices of a frame", ranks * slice_, backing);
    received_ = Buffer("slices of frames", ranks * slice_, backing);
  }
}

Tensor SumSlices::addends() const {
  return sent_.row(DType::bf16);
}

Tensor SumSlices::slice_of(const Tensor& all, int rank) const {
  const auto length = static_cast<std::int64_t>(slice_);
  return all.rows(rank * length, (rank + 1) * length);
}

// Matrices stand one behind the other in an addend, and so do a rank's rows of them in its slice.
std::int64_t SumSlices::copy_rows(StreamView stream,
                                  const Tensor& addend,
                                  int rank,
                                  Packing packing) const {
  Codec::Matrices matrices;
  std::int64_t first = 0;
  for (const CodecPart& part : options_.parts) {
    const std::int64_t end = first + part.shape.rows * part.shape.columns;
    matrices.push_back(addend.rows(first, end));
    first = end;
  }
  const Tensor slice = slice_of(addends(), rank);
  std::int64_t at = 0;
  for (const Tensor& rows : rows_of(rank, matrices)) {
    const std::int64_t end = at + rows.dim(0) * rows.dim(1);
    const Tensor copy = slice.rows(at, end).reshaped(rows.shape());
    packing == Packing::pack ? cast(stream, rows, copy) : cast(stream, copy, rows);
    at = end;
  }
  return at;
}

void SumSlices::scatter(StreamView stream, const Tensor& addend) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::int64_t used = copy_rows(stream, addend, rank, Packing::pack);
    fill_rest(stream, slice_of(addends(), rank), used);
  }
}

void SumSlices::collect(StreamView stream, const Tensor& addend) const {
  copy_rows(stream, addend, options_.rank, Packing::unpack);
}

Tensor SumSlices::frame() const {
  return frame_.row(DType::u8);
}

Tensor SumSlices::sent() const {
  return sent_.row(DType::u8);
}

Tensor SumSlices::received() const {
  return received_.row(DType::u8);
}

void SumSlices::cut(StreamView stream) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    const Tensor slice = slice_of(sent(), rank);
    cut_frame(stream, options_.setting, options_.parts, frame(), rows_of(rank), slice);
    const std::vector<CodecPart> own = parts_of_rows(options_.parts, rows_of(rank));
    fill_rest(stream, slice, static_cast<std::int64_t>(frame_bytes(options_.setting, own)));
  }
}

Codec::Matrices SumSlices::rows_of(int rank, const Codec::Matrices& matrices) const {
  Codec::Matrices rows;
  for (const MatrixRows& of_matrix : rows_of(rank)) {
    const MatrixShape& shape = options_.parts[of_matrix.matrix].shape;
    rows.push_back(matrices[of_matrix.matrix]
                       .reshaped({shape.rows, shape.columns})
                       .rows(of_matrix.first, of_matrix.last));
  }
  return rows;
}

void SumSlices::add_up(StreamView stream, const Codec::Matrices& matrices) const {
  const Codec* codec = codec_of(options_.rank);
  if (codec == nullptr) {
    return;
  }
  const Codec::Matrices own = rows_of(options_.rank, matrices);
  const auto bytes = static_cast<std::int64_t>(codec->frame_bytes());
  for (int rank = 0; rank < ranks(); ++rank) {
    // Its own slice goes nowhere.
    const Tensor all = rank == options_.rank ? sent() : received();
    codec->decode(stream, slice_of(all, rank).rows(0, bytes), own, rank > 0);
  }
}

void SumSlices::encode_sums(StreamView stream,
                            const Codec::Matrices& matrices,
                            const Codec::Matrices& residual,
                            const MessageKey& key) const {
  const Tensor slice = slice_of(sums(), options_.rank);
  Codec* codec = codec_of(options_.rank);
  const std::int64_t bytes = codec == nullptr ? 0 : static_cast<std::int64_t>(codec->frame_bytes());
  if (codec != nullptr) {
    codec->encode(stream,
                  rows_of(options_.rank, matrices),
                  residual.empty() ? residual : rows_of(options_.rank, residual),
                  key,
                  slice.rows(0, bytes));
  }
  fill_rest(stream, slice, bytes);
}

void SumSlices::settle_sums(StreamView stream, const Codec::Matrices& residual) const {
  Codec* codec = codec_of(options_.rank);
  if (codec != nullptr && !residual.empty()) {
    const auto bytes = static_cast<std::int64_t>(codec->frame_bytes());
    codec->settle(
        stream, slice_of(sums(), options_.rank).rows(0, bytes), rows_of(options_.rank, residual));
  }
}

void SumSlices::decode_sums(StreamView stream, const Codec::Matrices& matrices) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (const Codec* codec = codec_of(rank)) {
      const auto bytes = static_cast<std::int64_t>(codec->frame_bytes());
      codec->decode(stream, slice_of(sums(), rank).rows(0, bytes), rows_of(rank, matrices), false);
    }
  }
}

}  // namespace slackline
