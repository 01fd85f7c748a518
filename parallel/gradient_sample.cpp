#include "parallel/gradient_sample.h"

#include <algorithm>
#include <span>

namespace slackline {

namespace {

// 2^64 over the golden ratio: the upper halves of its multiples are spread over all numbers.
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;

// Element i of `taken` out of `count`: one of each of as many equal parts, at changing places in
// them, so that no column of a matrix is left out.
std::size_t place_of(std::size_t i, std::size_t taken, std::size_t count) {
  const std::size_t begin = i * count / taken;
  const std::size_t end = (i + 1) * count / taken;
  return begin + static_cast<std::size_t>(((i * kGolden) >> 32U) * (end - begin) >> 32U);
}

}  // namespace

GradientSample::GradientSample(const Codec::Matrices& gradients) {
  std::vector<std::size_t> ends;
  std::size_t count = 0;
  for (const Tensor& gradient : gradients) {
    count += gradient.num_elements();
    ends.push_back(count);
  }
  const std::size_t taken = std::min(count, kElements);
  elements_.reserve(taken);
  for (std::size_t i = 0; i < taken; ++i) {
    const std::size_t at = place_of(i, taken, count);
    const auto end = std::upper_bound(ends.begin(), ends.end(), at);
    const auto matrix = static_cast<std::size_t>(end - ends.begin());
    const std::size_t begin = *end - gradients[matrix].num_elements();
    elements_.push_back({.matrix = matrix, .index = at - begin});
  }
}

void GradientSample::take_raw(const Codec::Matrices& gradients) {
  raw_.clear();
  for (const Element& element : elements_) {
    raw_.push_back(gradients[element.matrix].span<float>()[element.index]);
  }
}

void GradientSample::take_sent(const Codec::Matrices& gradients, const Codec::Matrices& residual) {
  sent_.clear();
  residual_.clear();
  for (const Element& element : elements_) {
    sent_.push_back(gradients[element.matrix].span<float>()[element.index]);
    residual_.push_back(residual.empty() ? 0.0F
                                         : residual[element.matrix].span<float>()[element.index]);
  }
}

void GradientSample::add_up(Communicator& group) {
  transfer_ = group.all_reduce(Tensor(std::span(raw_)), {.what = "sampled gradients"});
}

MessageSums GradientSample::sums(std::size_t matrix) {
  transfer_.wait();
  MessageSums sums;
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    if (elements_[i].matrix != matrix) {
      continue;
    }
    const double x = raw_[i];
    const double y = sent_[i];
    const double e = residual_[i];
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
