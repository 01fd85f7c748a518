#include "parallel/channel/gradient_sample.h"

#include <algorithm>
#include <span>
#include <utility>

#include "compress/kernels/sparse/sparse.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

// 2^64 over the golden ratio: the upper halves of its multiples are spread over all numbers.
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;

// Element i of `taken` out of `count`: one of each of as many equal parts, at changing places in
// them, so that no column of a matrix is left out.
std::size_t sampled_element(std::size_t i, std::size_t taken, std::size_t count) {
  const std::size_t begin = i * count / taken;
  const std::size_t end = (i + 1) * count / taken;
  return begin + static_cast<std::size_t>(((i * kGolden) >> 32U) * (end - begin) >> 32U);
}

}  // namespace

GradientSample::GradientSample(const Codec::Matrices& gradients) {
  std::size_t count = 0;
  for (const Tensor& gradient : gradients) {
    count += gradient.num_elements();
  }
  const std::size_t taken = std::min(count, kElements);
  const Shape row{static_cast<std::int64_t>(taken)};
  const Backing backing = backing_of(gradients.front().device());
  indices_ = make_buffer("places of a sample", DType::u32, row, backing);
  taken_ = make_buffer("sample", DType::f32, row, backing);
  const HostTensor indices(indices_.view(DType::u32, row), HostTensor::Contents::undefined);
  std::size_t begin = 0;  // of a matrix
  std::size_t i = 0;
  for (const Tensor& gradient : gradients) {
    const std::size_t end = begin + gradient.num_elements();
    for (; i < taken && sampled_element(i, taken, count) < end; ++i) {
      indices.tensor().span<std::uint32_t>()[i] =
          static_cast<std::uint32_t>(sampled_element(i, taken, count) - begin);
    }
    borders_.push_back(static_cast<std::int64_t>(i));
    begin = end;
  }
  indices.write_back();
}

std::vector<float> GradientSample::values_of(StreamView stream,
                                             const Codec::Matrices& matrices) const {
  const Tensor all = taken_.row(DType::f32);
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    gather_at(stream,
              matrices[m],
              indices_.row(DType::u32).rows(borders_[m], borders_[m + 1]),
              all.rows(borders_[m], borders_[m + 1]));
  }
  stream.synchronize();
  const HostTensor host(all);
  const std::span<const float> values = host.tensor().span<float>();
  return {values.begin(), values.end()};
}

void GradientSample::take_raw(StreamView stream, const Codec::Matrices& gradients) {
  const std::vector<float> values = values_of(stream, gradients);
  added_.assign(values.begin(), values.end());
}

void GradientSample::take_sent(StreamView stream,
                               const Codec::Matrices& gradients,
                               const Codec::Matrices& residual) {
  sent_ = values_of(stream, gradients);
  if (rows_) {
    keep_own_rows(gradients);
  }
  added_.resize(2 * sent_.size());
  if (!residual.empty()) {
    const std::vector<float> kept = values_of(stream, residual);
    std::ranges::copy(kept, added_.begin() + static_cast<std::ptrdiff_t>(sent_.size()));
  }
}

void GradientSample::take_sent_of(std::vector<MatrixRows> rows) {
  rows_ = std::move(rows);
}

// Zeros elsewhere, so that adding up over ranks puts the rows together.
void GradientSample::keep_own_rows(const Codec::Matrices& gradients) {
  const HostTensor indices(indices_.row(DType::u32));
  const std::span<const std::uint32_t> places = indices.tensor().span<std::uint32_t>();
  std::vector<float> own(sent_.size());
  for (const MatrixRows& rows : *rows_) {
    const auto columns = static_cast<std::size_t>(gradients[rows.matrix].dim(1));
    const Slice elements{static_cast<std::size_t>(rows.first) * columns,
                         static_cast<std::size_t>(rows.last) * columns};
    const auto end = static_cast<std::size_t>(borders_[rows.matrix + 1]);
    for (auto i = static_cast<std::size_t>(borders_[rows.matrix]); i < end; ++i) {
      if (places[i] >= elements.begin && places[i] < elements.end) {
        own[i] = sent_[i];
      }
    }
  }
  sent_ = std::move(own);
}

void GradientSample::add_up(Communicator& group) {
  if (rows_) {
    sent_transfer_ = group.all_reduce(Tensor(std::span(sent_)), {.what = "decoded samples"});
  }
  transfer_ = group.all_reduce(Tensor(std::span(added_)), {.what = "sampled gradients"});
}

MessageSums GradientSample::sums(std::size_t matrix) {
  transfer_.wait();
  sent_transfer_.wait();
  MessageSums sums;
  const auto end = static_cast<std::size_t>(borders_[matrix + 1]);
  for (auto i = static_cast<std::size_t>(borders_[matrix]); i < end; ++i) {
    const double x = added_[i];
    const double y = sent_[i];
    const double e = added_[sent_.size() + i];
    sums.elements += 1.0;
    sums.raw += x * x;
    sums.sent += y * y;
    sums.product += x * y;
    sums.error += (x - y) * (x - y);
    sums.residual += e * e;
  }
  return sums;
}

}  // namespace slackline
