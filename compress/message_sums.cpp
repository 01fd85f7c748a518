#include "compress/message_sums.h"

#include <bit>
#include <span>

#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

static_assert(sizeof(MessageSums) == kNumMessageSums * sizeof(double));

double square(double value) {
  return value * value;
}

}  // namespace

MessageSums& MessageSums::operator+=(const MessageSums& other) {
  std::array<double, kNumMessageSums> numbers = numbers_of(*this);
  const std::array<double, kNumMessageSums> more = numbers_of(other);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] += more[i];
  }
  return *this = sums_of(numbers);
}

std::array<double, kNumMessageSums> numbers_of(const MessageSums& sums) {
  return std::bit_cast<std::array<double, kNumMessageSums>>(sums);
}

MessageSums sums_of(const std::array<double, kNumMessageSums>& numbers) {
  return std::bit_cast<MessageSums>(numbers);
}

MessageSums sums_of_message(const Tensor& raw,
                            const Tensor& sent,
                            const Codec::Matrices& residual) {
  const HostTensor host_raw(raw);
  const HostTensor host_sent(sent);
  const std::span<const float> x = host_raw.tensor().span<float>();
  const std::span<const float> y = host_sent.tensor().span<float>();
  MessageSums sums{.elements = static_cast<double>(x.size())};
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums.raw += square(x[i]);
    sums.sent += square(y[i]);
    sums.product += static_cast<double>(x[i]) * y[i];
    sums.error += square(static_cast<double>(x[i]) - y[i]);
  }
  if (!residual.empty()) {
    const HostTensor host_residual(residual.front());
    const std::span<const float> given = host_residual.tensor().span<float>();
    for (std::size_t i = 0; i < given.size(); ++i) {
      sums.residual += square(static_cast<double>(given[i]) - y[i]);
    }
  }
  return sums;
}

MessageSums sums_of_pair(const Tensor& left,
                         const Tensor& first_input,
                         const Tensor& second_input) {
  const HostTensor host_left(left);
  const HostTensor host_first(first_input);
  const HostTensor host_second(second_input);
  const std::span<const float> e = host_left.tensor().span<float>();
  const std::span<const float> first = host_first.tensor().span<float>();
  const std::span<const float> second = host_second.tensor().span<float>();
  MessageSums sums{.pair_elements = static_cast<double>(e.size())};
  for (std::size_t i = 0; i < e.size(); ++i) {
    const double difference = static_cast<double>(first[i]) - second[i];
    sums.left += square(e[i]);
    sums.left_sum += e[i];
    sums.difference += square(difference);
    sums.difference_sum += difference;
    sums.left_by_difference += difference * e[i];
  }
  return sums;
}

}  // namespace slackline
