#include "parallel/channel/sum_slices.h"

#include <algorithm>
#include <utility>

#include "compress/codec_bytes.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

// Elements of the matrices before each matrix of a message.
std::vector<std::int64_t> first_elements(const std::vector<CodecPart>& parts) {
  std::vector<std::int64_t> first;
  std::int64_t elements = 0;
  for (const CodecPart& part : parts) {
    first.push_back(elements);
    elements += part.shape.rows * part.shape.columns;
  }
  return first;
}

// What makes a shorter slice as long as the longest travels too.
void fill_rest(StreamView stream, const Tensor& slice, std::int64_t used) {
  if (used < slice.dim(0)) {
    fill_zero(stream, slice.rows(used, slice.dim(0)));
  }
}

Tensor row(const Buffer& buffer, DType dtype) {
  return buffer.view(dtype, {static_cast<std::int64_t>(buffer.bytes() / size_of(dtype))});
}

}  // namespace

SumSlices::SumSlices(const Options& options, std::unique_ptr<Codec> own_codec)
    : options_(options), own_codec_(std::move(own_codec)) {
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
  return row(sent_, DType::bf16);
}

Tensor SumSlices::slice_of_addends(int rank) const {
  const auto elements = static_cast<std::int64_t>(slice_);
  return addends().rows(rank * elements, (rank + 1) * elements);
}

void SumSlices::scatter(StreamView stream, const Tensor& addend) const {
  const std::vector<std::int64_t> first = first_elements(options_.parts);
  for (int rank = 0; rank < ranks(); ++rank) {
    const Tensor slice = slice_of_addends(rank);
    std::int64_t at = 0;
    for (const MatrixRows& own : rows_of(rank)) {
      const std::int64_t columns = options_.parts[own.matrix].shape.columns;
      const std::int64_t from = first[own.matrix] + own.first * columns;
      const std::int64_t count = own.count() * columns;
      cast(stream, addend.rows(from, from + count), slice.rows(at, at + count));
      at += count;
    }
    fill_rest(stream, slice, at);
  }
}

void SumSlices::collect(StreamView stream, const Tensor& addend) const {
  const std::vector<std::int64_t> first = first_elements(options_.parts);
  const Tensor slice = slice_of_addends(options_.rank);
  std::int64_t at = 0;
  for (const MatrixRows& own : rows_of(options_.rank)) {
    const std::int64_t columns = options_.parts[own.matrix].shape.columns;
    const std::int64_t to = first[own.matrix] + own.first * columns;
    const std::int64_t count = own.count() * columns;
    cast(stream, slice.rows(at, at + count), addend.rows(to, to + count));
    at += count;
  }
}

Tensor SumSlices::frame() const {
  return row(frame_, DType::u8);
}

Tensor SumSlices::sent() const {
  return row(sent_, DType::u8);
}

Tensor SumSlices::received() const {
  return row(received_, DType::u8);
}

void SumSlices::cut(StreamView stream) const {
  const FrameCutter cutter(options_.setting, options_.parts);
  const auto bytes = static_cast<std::int64_t>(slice_);
  for (int rank = 0; rank < ranks(); ++rank) {
    const Tensor slice = sent().rows(rank * bytes, (rank + 1) * bytes);
    cutter.cut(stream, frame(), rows_of(rank), slice);
    const std::vector<CodecPart> own = parts_of_rows(options_.parts, rows_of(rank));
    fill_rest(stream, slice, static_cast<std::int64_t>(frame_bytes(options_.setting, own)));
  }
}

void SumSlices::add_up(StreamView stream, const Codec::Matrices& matrices) const {
  if (own_codec_ == nullptr) {
    return;
  }
  Codec::Matrices own;
  for (const MatrixRows& rows : rows_of(options_.rank)) {
    const MatrixShape& shape = options_.parts[rows.matrix].shape;
    own.push_back(
        matrices[rows.matrix].reshaped({shape.rows, shape.columns}).rows(rows.first, rows.last));
  }
  const auto bytes = static_cast<std::int64_t>(own_codec_->frame_bytes());
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::int64_t first = rank * static_cast<std::int64_t>(slice_);
    // Its own slice goes nowhere.
    const Tensor all = rank == options_.rank ? sent() : received();
    own_codec_->decode(stream, all.rows(first, first + bytes), own, rank > 0);
  }
}

}  // namespace slackline
