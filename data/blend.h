#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slackline {

// Weights divided by their sum, added up as NumPy adds, so that blends equal Megatron's to the bit.
[[nodiscard]] std::vector<double> normalized_weights(std::span<const double> weights);

// The samples that a member of a blend is built with: its share of `samples`, and 0.5 % more for
// the unevenness of the blend. `weight` is normalized.
[[nodiscard]] std::uint64_t member_samples(std::uint64_t samples, double weight);

// Which data set each sample of a blend comes from. Step t takes the data set that is furthest
// behind its share, weight * max(t, 1) - samples taken so far; the first one where several are. A
// longer blend begins with the shorter one.
class Blend {
 public:
  static constexpr std::size_t kMaxMembers = 65536;

  struct Choice {
    std::size_t member = 0;
    std::uint64_t sample = 0;  // running number within the member
  };

  // REQUIRES: `weights` are normalized, at least one, at most kMaxMembers.
  Blend(std::span<const double> weights, std::uint64_t samples);

  [[nodiscard]] Choice operator[](std::uint64_t i) const {
    return members_.empty() ? Choice{.sample = i}
                            : Choice{.member = members_[i], .sample = samples_[i]};
  }

  // Counts the samples that a blend takes of each member, without the memory that a blend needs.
  [[nodiscard]] static std::vector<std::uint64_t> counts(std::span<const double> weights,
                                                         std::uint64_t samples);

  // Samples that the blend takes of a member.
  [[nodiscard]] std::uint64_t taken(std::size_t member) const { return taken_[member]; }

 private:
  std::vector<std::uint16_t> members_;  // of each sample; none where there is one member
  std::vector<std::uint64_t> samples_;
  std::vector<std::uint64_t> taken_;
};

}  // namespace slackline
