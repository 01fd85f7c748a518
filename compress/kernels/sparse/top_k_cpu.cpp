#include <atomic>
#include <bit>
#include <optional>

#include "compress/kernels/sparse/top_k.h"
#include "compress/kernels/sparse/top_k_plan.h"
#include "compress/kernels/sparse/top_k_ranges.h"
#include "core/kernels/parallel_ranges.h"

// A key is the bits of |x| (top_k_ranges.h).
//   1. A sample guesses a bound that somewhat more than k keys exceed (top_k_plan.h).
//   2. One pass in vectors over the values gathers the elements above it: the candidates.
//   3. The cut, the k-th largest key, is found exactly among the candidates, digit by digit, by
//      counting. Where candidates are fewer than k or too many for scratch, among all elements.
//   4. Every range counts what it keeps, and then writes it behind what the ranges before it keep.
// Many equal keys are what defeats the guess (a gradient that is mostly zero). Then the bound is
// put on that key, so that only larger ones are candidates; if these are fewer than k, that key is
// the cut.
namespace slackline::cpu {

namespace {

constexpr std::size_t kSamplesPerTask = 4096;
constexpr std::uint32_t kGoldenRatio = 0x9E3779B9;  // of 2^32

struct Digit {
  int shift;
  int bits;
};

constexpr Digit kDigits[] = {{20, 11}, {10, 10}, {0, 10}};  // of a key, largest first

// Keys above `key` are kept, and the first `ties` elements that equal it.
struct Cut {
  std::uint32_t key = 0;
  std::size_t ties = 0;
};

class TopK {
 public:
  TopK(StreamView stream, std::span<const float> values, std::size_t k)
      : stream_(stream),
        values_(values),
        k_(k),
        plan_(values.size(), k),
        scope_(stream.workspace()),
        scratch_(stream.workspace(), plan_, values.size(), stream.pool().num_threads()),
        ranges_(static_cast<TopKRange*>(scratch_.ranges.raw())),
        candidates_(static_cast<TopKCandidate*>(scratch_.candidates.raw())) {}

  template <typename T>
  void run(std::uint32_t* indices, T* kept) {
    const std::int32_t bound = guess_bound();
    const std::size_t gathered = gather_candidates(bound);
    const auto keep = [&](const auto& source, const Cut& cut) {
      count_kept(source, cut);
      write_kept(source, cut, indices, kept);
    };
    if (gathered >= k_ && gathered <= plan_.capacity) {
      const auto candidates = [this](std::size_t range) { return candidates_of(range); };
      keep(candidates, find_cut(candidates));
      return;
    }
    const auto all = [this](std::size_t range) { return elements_of(range); };
    const std::optional<Cut> cut = cut_on_bound(bound, gathered);
    keep(all, cut ? *cut : find_cut(all));
  }

 private:
  [[nodiscard]] RangeElements elements_of(std::size_t range) const {
    const std::size_t begin = range * TopKPlan::kRangeSize;
    return {values_.data() + begin,
            static_cast<std::uint32_t>(begin),
            std::min(TopKPlan::kRangeSize, values_.size() - begin)};
  }

  [[nodiscard]] RangeCandidates candidates_of(std::size_t range) const {
    return {candidates_ + ranges_[range].first_candidate, ranges_[range].num_candidates};
  }

  // The keys of one element of each stratum; where in the stratum changes from one to the next, so
  // that rows of any length are met in all their columns.
  void take_sample(std::span<std::uint32_t> keys) const {
    const std::size_t n = values_.size();
    const auto body = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t first = i * n / keys.size();
        const std::size_t width = (i + 1) * n / keys.size() - first;
        const std::uint32_t share = static_cast<std::uint32_t>(i) * kGoldenRatio;
        const float value = values_[first + (std::uint64_t{share} * width >> 32U)];
        keys[i] = std::bit_cast<std::uint32_t>(value) & kKeyMask;
      }
    };
    parallel_ranges(stream_, keys.size(), kSamplesPerTask, body);
  }

  [[nodiscard]] std::int32_t guess_bound() const {
    if (plan_.sample_size == 0) {
      return -1;
    }
    const std::span<std::uint32_t> keys = scratch_.sample.span<std::uint32_t>();
    take_sample(keys);
    const auto at = keys.begin() + static_cast<std::ptrdiff_t>(plan_.sample_rank - 1);
    std::nth_element(keys.begin(), at, keys.end(), std::greater<>());
    const std::uint32_t key = *at;
    const auto num_equal = static_cast<std::size_t>(std::count(keys.begin(), keys.end(), key));
    const auto bound = static_cast<std::int32_t>(key);
    return num_equal > plan_.sample_rank ? bound : bound - 1;
  }

  // Fills the ranges' candidates and returns how many there are. Where they do not fit, nothing
  // that was gathered is valid. Places in scratch depend on which range comes first; what a range
  // finds does not.
  std::size_t gather_candidates(std::int32_t bound) {
    std::atomic<std::size_t> total{0};
    const auto body = [&](std::size_t range, int thread) {
      std::uint32_t* stage = scratch_.stages.data<std::uint32_t>() +
                             static_cast<std::size_t>(thread) * scratch_.stage_size;
      const std::size_t count = collect(elements_of(range), bound, stage);
      const std::size_t first = total.fetch_add(count);
      ranges_[range] = {.first_candidate = first,
                        .num_candidates = static_cast<std::uint32_t>(count)};
      if (first + count > plan_.capacity) {
        return;
      }
      for (std::size_t i = 0; i < count; ++i) {
        candidates_[first + i] = {.index = stage[i],
                                  .bits = std::bit_cast<std::uint32_t>(values_[stage[i]])};
      }
    };
    stream_.pool().parallel_for(plan_.num_ranges, body);
    return total;
  }

  // The cut, where `gathered` keys above the bound are too few and those that equal it make up for
  // it.
  std::optional<Cut> cut_on_bound(std::int32_t bound, std::size_t gathered) {
    if (bound < 0 || gathered >= k_) {
      return std::nullopt;
    }
    const Cut cut{static_cast<std::uint32_t>(bound), k_ - gathered};
    const std::size_t num_equal =
        count_kept([this](std::size_t range) { return elements_of(range); }, cut);
    return num_equal >= cut.ties ? std::optional(cut) : std::nullopt;
  }

  template <typename Source>
  Cut find_cut(const Source& source) {
    std::uint32_t key = 0;
    std::size_t left = k_;
    for (const Digit digit : kDigits) {
      const std::span<const std::uint32_t> counts = count_digits(source, key, digit);
      std::size_t bin = counts.size() - 1;
      for (; left > counts[bin]; --bin) {
        left -= counts[bin];
      }
      key |= static_cast<std::uint32_t>(bin) << static_cast<unsigned>(digit.shift);
    }
    return {key, left};
  }

  // Counts by their digit the keys that agree with `prefix` in all larger digits.
  template <typename Source>
  std::span<const std::uint32_t> count_digits(const Source& source,
                                              std::uint32_t prefix,
                                              Digit digit) {
    const std::size_t num_bins = std::size_t{1} << static_cast<unsigned>(digit.bits);
    const std::span<std::uint32_t> bins = scratch_.bins.span<std::uint32_t>();
    std::fill(bins.begin(), bins.end(), 0U);
    const unsigned above = static_cast<unsigned>(digit.shift + digit.bits);
    const auto body = [&](std::size_t range, int thread) {
      const auto part = source(range);
      std::uint32_t* counts = &bins[static_cast<std::size_t>(thread) * TopKPlan::kBins];
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::uint32_t key = part.bits(i) & kKeyMask;
        if (key >> above == prefix >> above) {
          ++counts[key >> static_cast<unsigned>(digit.shift) & (num_bins - 1)];
        }
      }
    };
    stream_.pool().parallel_for(plan_.num_ranges, body);
    for (std::size_t i = TopKPlan::kBins; i < bins.size(); ++i) {
      bins[i % TopKPlan::kBins] += bins[i];
    }
    return bins.first(num_bins);
  }

  // Fills the ranges' counts and places, and returns how many keys equal the cut.
  template <typename Source>
  std::size_t count_kept(const Source& source, const Cut& cut) {
    const auto body = [&](std::size_t range, int /*thread*/) {
      const auto part = source(range);
      std::uint32_t num_above = 0;
      std::uint32_t num_equal = 0;
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::uint32_t key = part.bits(i) & kKeyMask;
        num_above += key > cut.key ? 1 : 0;
        num_equal += key == cut.key ? 1 : 0;
      }
      ranges_[range].num_above = num_above;
      ranges_[range].num_equal = num_equal;
    };
    stream_.pool().parallel_for(plan_.num_ranges, body);
    std::size_t place = 0;
    std::size_t num_equal = 0;
    for (TopKRange& range : std::span(ranges_, plan_.num_ranges)) {
      const std::size_t ties_left = cut.ties - std::min(cut.ties, num_equal);
      range.num_ties =
          static_cast<std::uint32_t>(std::min<std::size_t>(ties_left, range.num_equal));
      range.first_kept = place;
      place += range.num_above + range.num_ties;
      num_equal += range.num_equal;
    }
    return num_equal;
  }

  template <typename Source, typename T>
  void write_kept(const Source& source, const Cut& cut, std::uint32_t* indices, T* kept) const {
    const auto body = [&](std::size_t range, int /*thread*/) {
      const auto part = source(range);
      std::uint32_t ties = ranges_[range].num_ties;
      std::size_t place = ranges_[range].first_kept;
      for (std::size_t i = 0; i < part.size(); ++i) {
        const std::uint32_t key = part.bits(i) & kKeyMask;
        const bool is_tie = key == cut.key && ties > 0;
        if (key > cut.key || is_tie) {
          ties -= is_tie ? 1 : 0;
          indices[place] = part.index(i);
          kept[place++] = T(std::bit_cast<float>(part.bits(i)));
        }
      }
    };
    stream_.pool().parallel_for(plan_.num_ranges, body);
  }

  StreamView stream_;
  std::span<const float> values_;
  std::size_t k_;
  TopKPlan plan_;
  ArenaScope scope_;
  TopKScratch scratch_;
  TopKRange* ranges_;
  TopKCandidate* candidates_;
};

}  // namespace

template <typename T>
void top_k(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept) {
  TopK(stream, values.span<float>(), indices.num_elements())
      .run(indices.data<std::uint32_t>(), kept.data<T>());
}

template void top_k<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void top_k<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);

}  // namespace slackline::cpu
