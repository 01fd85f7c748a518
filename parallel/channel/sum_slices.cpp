#include "parallel/channel/sum_slices.h"

#include <algorithm>
#include <utility>

#include "compress/codec_bytes.h"
#include "core/check.h"
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

OwnedRows owned_rows(const GradientBucket& bucket,
                     const std::vector<const Parameter*>& matrices,
                     int ranks) {
  OwnedRows owners(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice own = slice_of(bucket.count, rank, ranks);
    for (std::size_t m = 0; m < matrices.size(); ++m) {
      const Shape& shape = matrices[m]->shard.shape;
      const auto columns = static_cast<std::size_t>(shape[1]);
      const std::size_t first = matrices[m]->first_element - bucket.first;
      const std::size_t begin = std::max(own.begin, first);
      const std::size_t end = std::min(own.end, first + shape.num_elements());
      if (begin < end) {
        owners[static_cast<std::size_t>(rank)].push_back(
            {.matrix = m,
             .first = static_cast<std::int64_t>((begin - first) / columns),
             .last = static_cast<std::int64_t>((end - first + columns - 1) / columns)});
      }
    }
  }
  return owners;
}

std::vector<MatrixRows> rows_counted_by(const OwnedRows& owners, int rank) {
  std::vector<MatrixRows> counted;
  for (MatrixRows own : owners[static_cast<std::size_t>(rank)]) {
    for (int before = 0; before < rank; ++before) {
      for (const MatrixRows& other : owners[static_cast<std::size_t>(before)]) {
        own.first = other.matrix == own.matrix ? std::max(own.first, other.last) : own.first;
      }
    }
    if (own.count() > 0) {
      counted.push_back(own);
    }
  }
  return counted;
}

std::size_t slice_elements(const std::vector<CodecPart>& parts, const OwnedRows& owners) {
  std::size_t longest = 0;
  for (const std::vector<MatrixRows>& rows : owners) {
    std::size_t elements = 0;
    for (const CodecPart& part : parts_of_rows(parts, rows)) {
      elements += part.shape.num_elements();
    }
    longest = std::max(longest, elements);
  }
  return longest;
}

std::size_t slice_bytes(const CodecSetting& setting,
                        const std::vector<CodecPart>& parts,
                        const OwnedRows& owners) {
  std::size_t longest = 0;
  for (const std::vector<MatrixRows>& rows : owners) {
    longest = std::max(longest, frame_bytes(setting, parts_of_rows(parts, rows)));
  }
  return longest;
}

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
