#include "data/blend.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"

namespace slackline {
namespace {

// numpy.sum: up to 128 numbers in eight interleaved sums, more than that by halves.
double numpy_sum(std::span<const double> values) {
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kBlock = 128;
  const std::size_t size = values.size();
  if (size > kBlock) {
    const std::size_t half = size / 2 - size / 2 % kLanes;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double sum = 0.0;
  std::size_t next = 0;
  if (size >= kLanes) {
    std::array<double, kLanes> lanes{};
    for (; next + kLanes <= size; next += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += values[next + lane];
      }
    }
    sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
          ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
  for (; next < size; ++next) {
    sum += values[next];
  }
  return sum;
}

// Calls `take` with the member of each sample, and counts them in `taken`.
template <typename Take>
void choose_members(std::span<const double> weights,
                    std::uint64_t samples,
                    std::vector<std::uint64_t>& taken,
                    const Take& take) {
  SL_CHECK(!weights.empty() && weights.size() <= Blend::kMaxMembers,
           std::to_string(weights.size()));
  for (std::uint64_t step = 0; step < samples; ++step) {
    const double steps = std::max(static_cast<double>(step), 1.0);
    std::size_t behind = 0;
    double largest = weights[0] * steps - static_cast<double>(taken[0]);
    for (std::size_t member = 1; member < weights.size(); ++member) {
      const double error = weights[member] * steps - static_cast<double>(taken[member]);
      if (error > largest) {
        largest = error;
        behind = member;
      }
    }
    take(behind);
    ++taken[behind];
  }
}

}  // namespace

std::vector<double> normalized_weights(std::span<const double> weights) {
  const double sum = numpy_sum(weights);
  std::vector<double> normalized(weights.begin(), weights.end());
  for (double& weight : normalized) {
    weight /= sum;
  }
  return normalized;
}

std::uint64_t member_samples(std::uint64_t samples, double weight) {
  constexpr double kSurplus = 0.005;
  const double share = std::ceil(static_cast<double>(samples) * weight);
  return static_cast<std::uint64_t>(std::ceil(share * (1 + kSurplus)));
}

Blend::Blend(std::span<const double> weights, std::uint64_t samples) : taken_(weights.size(), 0) {
  if (weights.size() == 1) {  // every sample is the member's next one
    taken_.front() = samples;
    return;
  }
  members_.reserve(samples);
  samples_.reserve(samples);
  choose_members(weights, samples, taken_, [&](std::size_t member) {
    members_.push_back(static_cast<std::uint16_t>(member));
    samples_.push_back(taken_[member]);
  });
}

std::vector<std::uint64_t> Blend::counts(std::span<const double> weights, std::uint64_t samples) {
  if (weights.size() == 1) {
    return {samples};
  }
  std::vector<std::uint64_t> taken(weights.size(), 0);
  choose_members(weights, samples, taken, [](std::size_t /*member*/) {});
  return taken;
}

}  // namespace slackline
